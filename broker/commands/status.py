"""`logbroker status`, `check`, `hosts`, `top`, `get`, `tail` and `events`: what changes nothing."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from dataclasses import asdict
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import TypeVar

import click

from broker.commands import shared
from broker.inspect import ask, checks
from broker.inspect.events import NOISE, Event, listen
from broker.inspect.message import StoredMessage, message_document, message_text
from broker.inspect.reader import get_last_message, get_message
from broker.inspect.status import (
    HOST_HEAD,
    PARTITION_HEAD,
    BrokerStatus,
    facts,
    partition_row,
)
from broker.inspect.tail import Searched, TailOptions, TailPiece, as_shown, tail
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import format_count, printable
from nats_logship.app.timestamps import Moment, format_time
from nats_logship.client.connection import Connection
from nats_logship.wire.endings import Endings

Shown = TypeVar("Shown")
_SHORTEST = timedelta(seconds=0.2)
logger = logging.getLogger(__name__)


@click.command(cls=SectionedCommand)
@shared.JSON
@shared.with_settings()
def status(settings: BrokerSettings, as_json: bool) -> None:
    """Show what the streams hold and how far behind the receiver of each partition is."""
    found = shared.looking(settings, "status", ask.full_status)
    if as_json:
        shared.print_json(found.document())
        return
    from nats_logship.app.table import plain, show, table

    show(*(f"{name:<8}{text}" for name, text in facts(found)), "")
    left = (0, len(PARTITION_HEAD) - 1)
    show(table(PARTITION_HEAD, list(map(partition_row, found.partitions)), left))
    for one in checks.judge(checks.CHECKS, found):
        if one.grade is not checks.Grade.OK:
            show(plain(f"{one.grade.name}: {one.text}", "yellow"))


@click.command(cls=SectionedCommand)
@click.argument("names", nargs=-1, type=click.Choice(checks.CHECKS), metavar="[CHECK]...")
@shared.JSON
@shared.with_settings()
def check(settings: BrokerSettings, names: tuple[str, ...], as_json: bool) -> int:
    """Check the broker for a monitoring system: exit code 0 for OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    CHECK is connection, stream, space, receivers, certificates or sites; all of them unless some
    are named.
    """
    wanted = tuple(dict.fromkeys(names)) or checks.CHECKS

    async def observed() -> tuple[BrokerStatus | None, str]:
        connection = Connection(settings.server, "logbroker check", access=settings.access)
        try:
            return await ask.observe(connection)
        finally:
            await connection.close()

    try:
        status, trouble = asyncio.run(observed())
        findings = checks.judge(wanted, status, trouble)
    except OperatorError as error:  # a monitoring system is told of it as of everything else
        findings = [checks.CheckResult(wanted[0], checks.Grade.UNKNOWN, str(error))]
    worst = checks.overall(findings)
    document = {"status": worst.name, "findings": [one.document() for one in findings]}
    shared.show(document, checks.to_nagios(findings), as_json=as_json)
    return worst


@click.command(cls=SectionedCommand)
@shared.HOSTS
@shared.option(
    "--silent", "DURATION", "Only hosts without a message for so long.", type=shared.LENGTH
)
@shared.JSON
@shared.with_settings()
def hosts(
    settings: BrokerSettings, hosts: tuple[str, ...], silent: timedelta | None, as_json: bool
) -> None:
    """Show the hosts that ship: how many messages the streams hold of each, and when the last one came."""
    found = shared.looking(settings, "hosts", partial(ask.ask_hosts, saved=ask.SavedPositions()))
    least, wanted = silent.total_seconds() if silent else 0.0, LineSelection(hosts=hosts)
    chosen = [one for one in found if wanted.wants_host(one.host) and one.silent_seconds >= least]
    if as_json:
        shared.print_json([one.document() for one in chosen])
        return
    from nats_logship.app.table import show, table

    rows = [one.row() for one in chosen]
    show(table(HOST_HEAD, rows, left=(0, len(HOST_HEAD) - 1)))
    pauses = dict.fromkeys(one.paused for one in chosen if one.paused)
    show("", f"{len(chosen)} of {format_count(len(found), 'host')}", *pauses)


@click.command(cls=SectionedCommand)
@shared.option(
    "--interval",
    "DURATION",
    "How often it is drawn.  [default: 2s]",
    default="2s",
    type=shared.LENGTH,
)
@shared.option("--count", "N", "End after so many views.", type=click.IntRange(min=1))
@shared.JSON
@shared.with_settings()
def top(settings: BrokerSettings, interval: timedelta, count: int | None, as_json: bool) -> None:
    """Watch what moves: rates in and out, what is behind, how the streams fill, and which hosts send most."""
    if interval < _SHORTEST:
        raise click.UsageError(f"--interval is at least {_SHORTEST.total_seconds()}s")
    from rich.live import Live

    from broker.inspect.top import TopView, draw, watch
    from nats_logship.app.table import show, stdout

    is_live = sys.stdout.isatty() and not as_json
    live = Live(console=stdout(), screen=True, auto_refresh=False) if is_live else None

    async def show_view(view: TopView) -> None:
        if live:
            live.update(draw(view), refresh=True)
        elif as_json:
            click.echo(json.dumps(view.document()))
        else:
            show(draw(view), "")

    with live or nullcontext():
        views = partial(watch, interval=interval.total_seconds())
        _show_each(settings, "top", views, show_view, count)


@click.command(cls=SectionedCommand)
@click.argument("sequence", metavar="[SEQUENCE]", required=False, type=click.IntRange(1, 2**63))
@shared.option("--host", "HOST", "The last message of this host.")
@shared.STREAM
@shared.JSON
@shared.with_settings()
def get(
    settings: BrokerSettings,
    sequence: int | None,
    host: str | None,
    stream: str | None,
    as_json: bool,
) -> None:
    """Show one message of a stream, or the last one: where its lines came from, its headers, and the lines."""
    if host and sequence:
        raise click.UsageError("SEQUENCE and --host both say which message; give one of them")

    async def one(connection: Connection) -> StoredMessage:
        if host:
            names = [stream] if stream else await ask.streams_of(connection)
            return await get_last_message(connection, names, host)
        name = await ask.stream_named(connection, stream)
        return await get_message(connection, name, sequence)

    found = shared.looking(settings, "get", one)
    if as_json:
        shared.print_json(message_document(found))
    else:
        sys.stdout.buffer.write(message_text(found))


_COUNT = click.IntRange(min=0)


@click.command("tail", cls=SectionedCommand)
@shared.HOSTS
@shared.PARTITIONS
@shared.option(
    "--file", "GLOB", "Only source files that match, by path or by name.", several="files"
)
@shared.moment("--since", "Begin there instead of with the last lines")
@click.option(
    "--lines", "-n", type=_COUNT, default=10, show_default=True, help="Begin with the last N."
)
@shared.option(
    "--match", "REGEX", "Only lines in which this is found.", default="", type=shared.PATTERN
)
@click.option("--follow/--no-follow", "-f", default=True, help="Go on with lines as they come.")
@shared.JSON
@shared.with_settings()
def tail_(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    files: tuple[str, ...],
    since: Moment | None,
    lines: int,
    match: str,
    follow: bool,
    as_json: bool,
) -> None:
    """Show lines as they arrive at the broker, of all hosts or of some, like `tail -f`; hosts are named unless one is."""
    selection = LineSelection(hosts, files)
    most = lines if since is None else None
    wanted = TailOptions(selection, only, since, most, follow, match)
    form = {"prefixed": wanted.only_host is None, "for_terminal": sys.stdout.isatty()}
    endings = Endings()

    async def show(one: TailPiece | Searched) -> None:
        if isinstance(one, Searched):
            logger.warning(
                "only the last %s searched; see --since",
                format_count(one.messages, "message", "were"),
            )
            return
        lines = one.lines
        if not (as_json or form["prefixed"]):
            lines = endings.join("", (one.host, one.file_id), lines, end=one.end, follows=True)
        await _write(_objects(one) if as_json else as_shown(one.host, lines, **form))

    _show_each(settings, "tail", partial(tail, wanted=wanted), show)


def _objects(piece: TailPiece) -> bytes:
    known = piece._asdict()
    known["time"] = format_time(known.pop("stored_at"))
    del known["file_id"], known["end"]
    lines = known.pop("lines").removesuffix(b"\n").split(b"\n")
    texts = (line.decode("utf-8", "surrogateescape") for line in lines)
    return "".join(f"{json.dumps(known | {'line': text})}\n" for text in texts).encode()


@click.command(cls=SectionedCommand)
@shared.JSON
@shared.option(
    "--kind", "GLOB", "Only kinds that match, as 'client_*'; several times.", several="kinds"
)
@shared.option("--count", "N", "End after so many.", type=click.IntRange(min=1))
@shared.with_settings()
def events(
    settings: BrokerSettings, as_json: bool, kinds: tuple[str, ...], count: int | None
) -> None:
    """Show what happens at the broker as it happens: who comes and goes, who is refused, what changes and fails.

    Events of the server itself (clients, refusals, shutdowns) take the credential of an admin or a monitor, once there are credentials.
    """

    def chosen(connection: Connection) -> AsyncGenerator[Event, None]:
        return (one async for one in listen(connection) if _is_wanted(one.kind, kinds))

    async def show(event: Event) -> None:
        line = printable(f"{event.time[:19]}Z {event.kind}: {event.text}")
        text = json.dumps(asdict(event)) if as_json else line
        await _write(f"{text}\n".encode("utf-8", "backslashreplace"))

    _show_each(settings, "events", chosen, show, count)


def _is_wanted(kind: str, globs: tuple[str, ...]) -> bool:
    return any(fnmatchcase(kind, glob) for glob in globs) if globs else kind not in NOISE


def _show_each(
    settings: BrokerSettings,
    command: str,
    items: Callable[[Connection], AsyncGenerator[Shown, None]],
    show: Callable[[Shown], Awaitable[None]],
    count: int | None = None,
) -> None:
    """Show what comes, one after the other; at most `count` of it."""

    async def shown(connection: Connection) -> None:
        left = count or sys.maxsize
        async with aclosing(items(connection)) as found:
            async for one in found:
                await show(one)
                if not (left := left - 1):
                    return

    shared.asking(settings, command, shown)


async def _write(data: bytes) -> None:
    """Write in a thread: a reader that takes its time does not hold up the connection."""

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]

    await asyncio.to_thread(write)
