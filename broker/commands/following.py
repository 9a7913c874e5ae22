"""`logbroker tail`."""

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Any

import click

from broker.commands.asking import asking
from broker.connecting.connection import Connection
from broker.looking.lines import Run
from broker.looking.sink import Sink
from broker.looking.tail import Wanted, tail
from broker.moment import ACCEPTED, Moment, read_moment
from broker.running import program
from broker.running.options import given, settings_options
from broker.selection import Selection
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.topology import MAX_PARTITIONS

__all__ = ["tail_lines"]

_LAST_LINES = 10


def _moment(context: click.Context, parameter: click.Parameter, text: str | None) -> Moment | None:
    try:
        return None if text is None else read_moment(text, datetime.now(UTC))  # noqa: TID251 - the shell's clock
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _partitions(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...]:
    numbers = [number for text in texts for number in text.split(",")]
    for number in numbers:
        if not (number.isascii() and number.isdigit() and int(number) < MAX_PARTITIONS):
            raise click.BadParameter(f"{number!r} is not the number of a partition")
    return tuple(sorted({int(number) for number in numbers}))


@click.command("tail")
@settings_options(BrokerSettings, STATUS_FIELDS)
@click.option(
    "--host",
    multiple=True,
    metavar="GLOB",
    help="Only hosts that match; may be given several times.",
)
@click.option(
    "--partition",
    multiple=True,
    metavar="N",
    callback=_partitions,
    help="Only these partitions; also as 0,3,5.",
)
@click.option(
    "--file",
    multiple=True,
    metavar="GLOB",
    help="Only source files that match: by path, or by name without a slash.",
)
@click.option(
    "--since",
    metavar="PLACE",
    callback=_moment,
    help=f"Begin there instead of with the last lines: {ACCEPTED}.",
)
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Begin with so many of the last lines.  [default: {_LAST_LINES}]",
)
@click.option(
    "--follow/--no-follow",
    "-f",
    default=True,
    help="Go on with lines as they come.  [default: follow]",
)
@click.option(
    "--prefix/--no-prefix",
    default=None,
    help="Name the host in front of each line.  [default: unless one host is named]",
)
def tail_lines(
    host: tuple[str, ...],
    partition: tuple[int, ...],
    file: tuple[str, ...],
    since: Moment | None,
    lines: int | None,
    follow: bool,
    prefix: bool | None,
    **options: Any,
) -> None:
    """Show lines as they arrive at the broker, of all hosts or of some, like `tail -f`."""
    if since is not None and lines is not None:
        raise click.UsageError("--since and --lines are two places to begin; give one of them")
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    wanted = Wanted(
        Selection(host, file), partition, since, _LAST_LINES if lines is None else lines, follow
    )
    run = Run(
        prefixed=wanted.only_host is None if prefix is None else prefix,
        for_terminal=sys.stdout.isatty(),
    )
    try:
        asking(settings, "tail", lambda connection: _show(connection, wanted, run))
    except BrokenPipeError:
        # whoever read it has had enough: `tail | head` is no failure; nothing of ours waits to be flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _show(connection: Connection, wanted: Wanted, run: Run) -> None:
    sink = Sink(sys.stdout.fileno())
    watching = asyncio.ensure_future(sink.until_nobody_reads())
    showing = asyncio.ensure_future(_write(connection, wanted, run, sink))
    try:
        await asyncio.wait({watching, showing}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        showing.result()
    finally:
        for task in (showing, watching):
            task.cancel()
        await asyncio.gather(showing, watching, return_exceptions=True)


async def _write(connection: Connection, wanted: Wanted, run: Run, sink: Sink) -> None:
    async for shown in tail(connection, wanted, run):
        await sink.write(shown)
