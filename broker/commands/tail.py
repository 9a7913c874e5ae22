"""`logbroker tail` and `events`."""

import asyncio
import json
import os
import select
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Any

import click

from broker.app import program
from broker.app.options import given, settings_options
from broker.app.printable import printable
from broker.app.selection import Selection
from broker.app.units import ACCEPTED, Moment
from broker.client.connection import Connection
from broker.commands.shared import asking, place
from broker.inspect.events import Event, is_noise, listen
from broker.inspect.lines import LineOutput
from broker.inspect.message import rfc3339
from broker.inspect.tail import Piece, Wanted, tail
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.wire.streams import MAX_PARTITIONS

__all__ = ["events", "tail_lines"]

_LAST_LINES = 10
_LOOK_EVERY = 1.0  # seconds


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
@click.option("--json", "as_json", is_flag=True, help="As JSON, an object for each line.")
@settings_options(BrokerSettings, STATUS_FIELDS)
def tail_lines(
    host: tuple[str, ...],
    partition: tuple[int, ...],
    file: tuple[str, ...],
    since: Moment | None,
    lines: int | None,
    follow: bool,
    prefix: bool | None,
    as_json: bool,
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
    output = LineOutput(
        prefixed=wanted.only_host is None if prefix is None else prefix,
        for_terminal=sys.stdout.isatty(),
    )

    async def shown(connection: Connection) -> AsyncGenerator[bytes, None]:
        async with aclosing(tail(connection, wanted)) as pieces:
            async for some in pieces:
                if as_json:
                    yield b"".join(map(_objects, some))
                else:
                    yield b"".join(output.add(one.host, one.file, one.lines) for one in some)

    _follow(settings, "tail", shown)


def _objects(piece: Piece) -> bytes:
    known = {
        "host": piece.host,
        "partition": piece.partition,
        "file": piece.file,
        "sequence": piece.sequence,
        "time": rfc3339(piece.stored_at),
    }
    return b"".join(
        json.dumps(known | {"line": line.decode("utf-8", "surrogateescape")}).encode() + b"\n"
        for line in piece.lines.removesuffix(b"\n").split(b"\n")
    )


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
        return f"{json.dumps(event.document())}\n".encode()
    line = f"{event.time[:19]}Z {event.kind}: {event.text}"
    return f"{printable(line)}\n".encode("utf-8", "backslashreplace")


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
    reading = asyncio.ensure_future(_until_nobody_reads(sys.stdout.fileno()))
    writing = asyncio.ensure_future(_write(shown, sys.stdout.fileno()))
    try:
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        writing.result()
    finally:
        for task in (writing, reading):
            task.cancel()
        await asyncio.gather(writing, reading, return_exceptions=True)


async def _write(shown: AsyncGenerator[bytes, None], descriptor: int) -> None:
    """Write in a thread: a reader that takes its time does not hold up the connection."""
    async with aclosing(shown):
        async for lines in shown:
            if lines:
                await asyncio.to_thread(_write_all, descriptor, lines)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program that shares the descriptor made it so
            select.select([], [descriptor], [])


async def _until_nobody_reads(descriptor: int) -> None:
    """Raise BrokenPipeError when the reader has gone, also while there is nothing to write."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are reported in any case
    while True:
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            raise BrokenPipeError
        await asyncio.sleep(_LOOK_EVERY)
