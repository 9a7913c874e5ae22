"""`logbroker top`."""

import json
import sys
from collections.abc import Callable
from contextlib import aclosing, nullcontext
from dataclasses import replace
from datetime import timedelta

import click
from rich.live import Live

from broker.app.table import show, stdout
from broker.client.connection import Connection
from broker.commands.shared import JSON, asking, length, with_settings
from broker.inspect.top import By, TopLayout, TopView, draw, watch
from broker.settings import BrokerSettings

__all__ = ["top"]

_SHORTEST = timedelta(seconds=0.2)


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
    type=click.Choice([by.value for by in By]),
    default=By.BYTES.value,
    show_default=True,
    help="By what hosts are sorted.",
)
@JSON
@with_settings()
def top(
    settings: BrokerSettings,
    interval: timedelta,
    once: bool,
    count: int | None,
    sort: str,
    as_json: bool,
) -> None:
    """Watch what moves: rates in and out, what is behind, how the streams fill, and which hosts send, are slow or silent."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval is at least {_SHORTEST.total_seconds()}s")
    layout = TopLayout(by=By(sort))
    most = 1 if once else count
    is_live = sys.stdout.isatty() and not (once or as_json)
    live = Live(console=stdout(), screen=True, auto_refresh=False) if is_live else None

    def print_view(view: TopView) -> None:
        if live:
            fitting = replace(layout, height=live.console.height)
            live.update(draw(view, fitting), refresh=True)
        elif as_json:
            click.echo(json.dumps(view.document()))
        else:
            show(draw(view, layout), "")

    async def watched(connection: Connection) -> None:
        with live or nullcontext():
            await _watch(connection, interval.total_seconds(), most, print_view)

    asking(settings, "top", watched)


async def _watch(
    connection: Connection, interval: float, most: int | None, print_view: Callable[[TopView], None]
) -> None:
    shown = 0
    async with aclosing(watch(connection, interval)) as views:
        async for view in views:
            print_view(view)
            shown += 1
            if shown == most:
                return
