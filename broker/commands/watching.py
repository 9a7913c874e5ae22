"""`logbroker top`."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import click

from broker.app import program
from broker.app.durations import parse_duration
from broker.app.options import given, settings_options
from broker.commands.asking import asking
from broker.looking.screen import Screen
from broker.looking.top import watch
from broker.looking.top_view import KEYS, By, Layout, screen
from broker.looking.traffic import Picture
from broker.settings import STATUS_FIELDS, BrokerSettings

__all__ = ["top"]

_SHORTEST = 0.2  # seconds


def _seconds(context: click.Context, parameter: click.Parameter, text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option(
    "--interval",
    default="2s",
    callback=_seconds,
    metavar="TIME",
    show_default=True,
    help="How often it is drawn.",
)
@click.option("--once", is_flag=True, help="One picture as plain text, after one interval.")
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="End after so many pictures."
)
@click.option(
    "--sort",
    type=click.Choice([by.name.lower() for by in By]),
    default=By.BYTES.name.lower(),
    show_default=True,
    help="By what hosts are sorted at first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Lines of a picture as plain text; default: all.",
)
@click.option(
    "--silent",
    default="5m",
    callback=_seconds,
    metavar="TIME",
    show_default=True,
    help="From when on a host is silent.",
)
@click.option(
    "--slow",
    default="10s",
    callback=_seconds,
    metavar="TIME",
    show_default=True,
    help="From when on it is slow: the time from reading a line to its storage, by the clocks of both.",
)
@settings_options(BrokerSettings, STATUS_FIELDS)
def top(
    interval: float,
    once: bool,
    count: int | None,
    sort: str,
    limit: int | None,
    silent: float,
    slow: float,
    **options: Any,
) -> None:
    """Watch what moves: rates in and out, what waits, how the store fills, and which hosts send, are slow or silent."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval is at least {_SHORTEST}s")
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    layout = Layout(height=limit, by=By[sort.upper()], silent=silent, slow=slow)
    most = 1 if once else count
    if once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        asking(settings, "top", lambda c: _print(watch(c, interval), layout, most))
        return
    with Screen(sys.stdin.fileno(), sys.stdout.fileno()) as terminal:
        asking(settings, "top", lambda c: _Live(terminal, layout).show(watch(c, interval), most))


async def _print(pictures: AsyncGenerator[Picture, None], layout: Layout, most: int | None) -> None:
    shown = 0
    async with aclosing(pictures):
        async for picture in pictures:
            click.echo("\n".join([*screen(picture, layout), ""]))
            shown += 1
            if shown == most:
                return


class _Live:
    """The screen as it is, redrawn for a new picture, a key, or another size."""

    def __init__(self, terminal: Screen, layout: Layout) -> None:
        self._terminal = terminal
        self._layout = layout
        self._picture: Picture | None = None
        self._ended = asyncio.Event()

    async def show(self, pictures: AsyncGenerator[Picture, None], most: int | None) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._typed)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._ended.set)
        loop.add_signal_handler(signal.SIGWINCH, self._draw)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._terminal.draw(["looking …"])
        drawing = asyncio.ensure_future(self._take(pictures, most))
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({drawing, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if drawing.done():
                drawing.result()
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for task in (drawing, waiting):
                task.cancel()
            await asyncio.gather(drawing, waiting, return_exceptions=True)

    async def _take(self, pictures: AsyncGenerator[Picture, None], most: int | None) -> None:
        shown = 0
        async with aclosing(pictures):
            async for self._picture in pictures:
                self._draw()
                shown += 1
                if shown == most:
                    return

    def _draw(self) -> None:
        width, height = self._terminal.size
        if self._picture is not None:
            layout = replace(self._layout, width=width, height=height, foot=KEYS)
            self._terminal.draw(screen(self._picture, layout))

    def _typed(self) -> None:
        typed = self._terminal.key()
        if not typed or "q" in typed:  # the terminal is gone, or nobody wants more
            self._ended.set()
            return
        known = [by for by in By if by.value in typed]
        if known:
            self._layout = replace(self._layout, by=known[-1])
            self._draw()

    def _suspend(self) -> None:
        self._terminal.suspend()
        self._draw()
