"""`logbroker top`."""

import asyncio
import json
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from broker.app import program
from broker.app.options import given, settings_options
from broker.app.table import show, stdout
from broker.commands.shared import asking, length
from broker.inspect.top import By, Layout, draw, watch
from broker.inspect.traffic import View
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["top"]

_SHORTEST = timedelta(seconds=0.2)
_KEYS = Text("q quit · sort hosts by: b bytes  l lines  n name  s silence  d delay", "dim")
_Views = AsyncGenerator[View, None]


@click.command()
@click.option(
    "--interval",
    default="2s",
    callback=length,
    metavar="TIME",
    show_default=True,
    help="How often it is drawn.",
)
@click.option("--once", is_flag=True, help="Draw once, after one interval.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many views.")
@click.option(
    "--sort",
    type=click.Choice([by.name.lower() for by in By]),
    default=By.BYTES.name.lower(),
    show_default=True,
    help="By what hosts are sorted at first.",
)
@click.option(
    "--silent",
    default="5m",
    callback=length,
    metavar="TIME",
    show_default=True,
    help="From when on a host is silent.",
)
@click.option(
    "--slow",
    default="10s",
    callback=length,
    metavar="TIME",
    show_default=True,
    help="From when on a host is slow: the time from reading a line to its storage, by the clocks of both.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, a view a line.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def top(
    interval: timedelta,
    once: bool,
    count: int | None,
    sort: str,
    silent: timedelta,
    slow: timedelta,
    as_json: bool,
    **options: Any,
) -> None:
    """Watch what moves: rates in and out, what is behind, how the streams fill, and which hosts send, are slow or silent."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval is at least {_SHORTEST.total_seconds()}s")
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    layout = Layout(by=By[sort.upper()], silent=silent.total_seconds(), slow=slow.total_seconds())
    most = 1 if once else count
    is_live = sys.stdin.isatty() and sys.stdout.isatty() and not (once or as_json)

    async def watched(views: _Views) -> None:
        async with aclosing(views):
            if is_live:
                await _Live(layout).show(views, most)
            else:
                await _print(views, layout, most, as_json=as_json)

    asking(settings, "top", lambda c: watched(watch(c, interval.total_seconds())))


async def _print(views: _Views, layout: Layout, most: int | None, *, as_json: bool) -> None:
    shown = 0
    async for view in views:
        if as_json:
            click.echo(json.dumps(view.document()))
        else:
            show(draw(view, layout), "")
        shown += 1
        if shown == most:
            return


class _Live:
    """The screen, drawn again for a new view, a key, or another size."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._view: View | None = None
        self._live = Live(console=stdout(), screen=True, auto_refresh=False)
        self._ended = asyncio.Event()

    async def show(self, views: _Views, most: int | None) -> None:
        loop = asyncio.get_running_loop()
        with _keys_at_once(), self._live:
            loop.add_reader(sys.stdin.fileno(), self._typed)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._ended.set)
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            taking = asyncio.ensure_future(self._take(views, most))
            waiting = asyncio.ensure_future(self._ended.wait())
            try:
                await asyncio.wait({taking, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if taking.done():
                    taking.result()
            finally:
                loop.remove_reader(sys.stdin.fileno())
                for task in (taking, waiting):
                    task.cancel()
                await asyncio.gather(taking, waiting, return_exceptions=True)

    async def _take(self, views: _Views, most: int | None) -> None:
        shown = 0
        async for self._view in views:
            self._draw()
            shown += 1
            if shown == most:
                return

    def _draw(self) -> None:
        if self._view is not None:
            layout = replace(self._layout, height=self._live.console.height - 1)
            self._live.update(Group(draw(self._view, layout), _KEYS), refresh=True)

    def _typed(self) -> None:
        typed = os.read(sys.stdin.fileno(), 64).decode("utf-8", "replace")
        if not typed or "q" in typed:  # the terminal is gone, or the user has seen enough
            self._ended.set()
            return
        known = [by for by in By if by.value in typed]
        if known:
            self._layout = replace(self._layout, by=known[-1])
            self._draw()


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Have the terminal deliver each key as it is typed; Ctrl-Z would leave it that way, and does nothing."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    stopping = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    tty.setcbreak(keyboard)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTSTP, stopping)
