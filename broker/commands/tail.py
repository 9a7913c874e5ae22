"""`logbroker tail` and `events`."""

import asyncio
import json
import os
import select
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any

import click

from broker.app.selection import LineSelection
from broker.app.units import ACCEPTED, Moment
from broker.app.untrusted import printable
from broker.client.connection import Connection
from broker.commands.shared import HOSTS, JSON, MOMENT, PARTITIONS, asking, with_settings
from broker.inspect.events import NOISE, Event, listen
from broker.inspect.message import rfc3339
from broker.inspect.tail import TailOptions, TailPiece, as_shown, tail
from broker.settings import BrokerSettings

__all__ = ["events", "tail_lines"]

_LAST_LINES = 10


@click.command("tail")
@HOSTS
@PARTITIONS
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="GLOB",
    help="Only source files that match: by path, or by name without a slash.",
)
@click.option(
    "--since",
    metavar="WHEN",
    type=MOMENT,
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
@JSON
@with_settings()
def tail_lines(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    files: tuple[str, ...],
    since: Moment | None,
    lines: int | None,
    follow: bool,
    prefix: bool | None,
    as_json: bool,
) -> None:
    """Show lines as they arrive at the broker, of all hosts or of some, like `tail -f`."""
    if since is not None and lines is not None:
        raise click.UsageError("--since and --lines both say where to begin; give one of them")
    last = _LAST_LINES if lines is None else lines
    wanted = TailOptions(LineSelection(hosts, files), only, since, last, follow)
    prefixed = wanted.only_host is None if prefix is None else prefix
    form = {"prefixed": prefixed, "for_terminal": sys.stdout.isatty()}

    async def shown(connection: Connection) -> AsyncGenerator[bytes, None]:
        async with aclosing(tail(connection, wanted)) as pieces:
            async for some in pieces:
                yield b"".join(
                    _objects(one) if as_json else as_shown(one.host, one.lines, **form)
                    for one in some
                )

    asking(settings, "tail", lambda connection: _print(shown(connection)))


def _objects(piece: TailPiece) -> bytes:
    known = piece._asdict()
    known["time"] = rfc3339(known.pop("stored_at"))
    lines = known.pop("lines").removesuffix(b"\n").split(b"\n")
    texts = (line.decode("utf-8", "surrogateescape") for line in lines)
    return "".join(f"{json.dumps(known | {'line': text})}\n" for text in texts).encode()


@click.command()
@JSON
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="GLOB",
    help="Only kinds that match, such as 'client_*' or auth_error; may be given several times.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Calls of the API and numbers by the clock, too."
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@with_settings()
def events(
    settings: BrokerSettings,
    as_json: bool,
    kinds: tuple[str, ...],
    everything: bool,
    count: int | None,
) -> None:
    """Show what happens at the broker as it happens: who comes and goes, who is refused, what changes and fails."""

    def is_wanted(event: Event) -> bool:
        if kinds:
            return any(fnmatchcase(event.kind, glob) for glob in kinds)
        return everything or event.kind not in NOISE

    async def shown(connection: Connection) -> AsyncGenerator[bytes, None]:
        left = count or sys.maxsize
        async with aclosing(listen(connection)) as heard:
            async for event in heard:
                if is_wanted(event):
                    yield _line(event, as_json=as_json)
                    left -= 1
                if not left:
                    return

    asking(settings, "events", lambda connection: _print(shown(connection)))


def _line(event: Event, *, as_json: bool) -> bytes:
    if as_json:
        document: dict[str, Any] = asdict(event)
        return f"{json.dumps(document)}\n".encode()
    line = f"{event.time[:19]}Z {event.kind}: {event.text}"
    return f"{printable(line)}\n".encode("utf-8", "backslashreplace")


async def _print(shown: AsyncGenerator[bytes, None]) -> None:
    """Write in a thread: a reader that takes its time does not hold up the connection."""
    async with aclosing(shown):
        async for lines in shown:
            await asyncio.to_thread(_write_all, sys.stdout.fileno(), lines)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another program that shares the descriptor made it so
            select.select([], [descriptor], [])
