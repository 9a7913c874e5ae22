"""`logbroker tail` and `events`."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Any

import click

from broker.app import program
from broker.app.moment import ACCEPTED, Moment
from broker.app.options import given, settings_options
from broker.app.printable import printable
from broker.app.selection import Selection
from broker.client.connection import Connection
from broker.commands.asking import asking
from broker.commands.typed import place
from broker.looking.event import Event, is_noise
from broker.looking.events import listen
from broker.looking.lines import Run
from broker.looking.sink import Sink
from broker.looking.tail import Wanted, tail
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.wire.streams import MAX_PARTITIONS

__all__ = ["events", "tail_lines"]

_LAST_LINES = 10


def _partitions(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[int, ...]:
    numbers = [number for text in texts for number in text.split(",")]
    for number in numbers:
        if not (number.isascii() and number.isdigit() and int(number) < MAX_PARTITIONS):
            raise click.BadParameter(f"{number!r} is not the number of a partition")
    return tuple(sorted({int(number) for number in numbers}))


@click.command("tail")
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
    callback=place,
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
@settings_options(BrokerSettings, STATUS_FIELDS)
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
    _follow(settings, "tail", lambda connection: tail(connection, wanted, run))


@click.command()
@click.option("--json", "as_json", is_flag=True, help="An object a line, with all that was said.")
@click.option(
    "--kind",
    multiple=True,
    metavar="GLOB",
    help="Only kinds that match, such as 'client_*' or auth_error; may be given several times.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Calls of the API and numbers by the clock, too."
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def events(
    as_json: bool, kind: tuple[str, ...], everything: bool, count: int | None, **options: Any
) -> None:
    """Show what happens at the broker as it happens: who comes and goes, who is refused, what changes and fails."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)

    def is_wanted(event: Event) -> bool:
        if kind:
            return any(fnmatchcase(event.kind, glob) for glob in kind)
        return everything or not is_noise(event)

    async def shown(connection: Connection) -> AsyncGenerator[bytes, None]:
        left = count
        async with aclosing(listen(connection)) as heard:
            async for event in heard:
                if is_wanted(event):
                    yield _line(event, as_json=as_json)
                    left = None if left is None else left - 1
                if left == 0:
                    return

    _follow(settings, "events", shown)


def _line(event: Event, *, as_json: bool) -> bytes:
    if as_json:
        return f"{json.dumps(event.as_json())}\n".encode()
    told = f"{event.time[:19]}Z {event.kind}: {event.text}"
    return f"{printable(told)}\n".encode("utf-8", "backslashreplace")


def _follow(
    settings: BrokerSettings,
    command: str,
    show: Callable[[Connection], AsyncGenerator[bytes, None]],
) -> None:
    """Write what is shown until it ends, or until nobody reads it any more."""
    try:
        asking(settings, command, lambda connection: _watched(show(connection)))
    except BrokenPipeError:
        # whoever read it has had enough: `tail | head` is no failure; nothing of ours waits to be flushed into it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _watched(shown: AsyncGenerator[bytes, None]) -> None:
    sink = Sink(sys.stdout.fileno())
    watching = asyncio.ensure_future(sink.until_nobody_reads())
    writing = asyncio.ensure_future(_write(shown, sink))
    try:
        await asyncio.wait({watching, writing}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        writing.result()
    finally:
        for task in (writing, watching):
            task.cancel()
        await asyncio.gather(writing, watching, return_exceptions=True)


async def _write(shown: AsyncGenerator[bytes, None], sink: Sink) -> None:
    async with aclosing(shown):
        async for lines in shown:
            await sink.write(lines)
