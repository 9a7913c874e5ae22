"""`logbroker tail`, `get` and `events`: show lines, a message, or what happens at the broker."""

import json
import logging
import sys
from collections.abc import AsyncGenerator
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial

import click

from broker.commands import shared
from broker.inspect.events import NOISE, BrokerEvent, listen
from broker.inspect.message import format_message, serialize_message
from broker.inspect.reader import get_last_message, get_message
from broker.inspect.streams import choose_stream, list_streams
from broker.inspect.tail import Searched, TailOptions, tail
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand, note_no_line, write_bytes
from nats_logship.app.selection import LineSelection
from nats_logship.app.text import escape, format_count, prefix_lines, printable
from nats_logship.app.timestamps import Moment, format_time
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines
from nats_logship.wire.endings import Endings
from nats_logship.wire.stream_message import StreamMessage

_COUNT = click.IntRange(min=0)
logger = logging.getLogger(__name__)


@click.command("tail", cls=SectionedCommand)
@shared.HOSTS
@shared.PARTITIONS
@shared.option(
    "--file", "GLOB", "Only source files whose path or name matches; repeatable.", several="files"
)
@shared.moment_option("--since", "Start there instead of with the last lines")
@click.option(
    "--lines", "-n", type=_COUNT, default=10, show_default=True, help="Start with the last N lines."
)
@shared.option("--match", "REGEX", "Only lines that match.", default="", type=shared.REGEX)
@click.option(
    "--follow/--no-follow", "-f", default=True, help="Go on with new lines.", show_default=True
)
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
    """Show lines as they arrive at the broker, like `tail -f`.

    Each line starts with its host, unless --host names exactly one.
    """
    options = TailOptions(
        selection=LineSelection(hosts, files),
        partitions=only,
        since=since,
        lines=lines if since is None else None,
        follow=follow,
        match=match,
    )
    printer = _Printer(options, as_json=as_json)
    shared.show_each(settings, "tail", partial(tail, wanted=options), printer.show)
    if not (printer.has_shown or lines == 0):
        note_no_line(since)


class _Printer:
    """Prints the lines of `tail`: with the host before each, unless only one host is wanted."""

    def __init__(self, options: TailOptions, *, as_json: bool) -> None:
        self._endings, self._as_json, self.has_shown = Endings(), as_json, False
        self._prefixed, self._for_terminal = options.wanted.only_host is None, sys.stdout.isatty()

    async def show(self, found: list[FoundLines] | Searched) -> None:
        if isinstance(found, Searched):
            logger.warning(
                "only the last %s searched for these lines; give --since to search further back",
                format_count(found.messages, "message", "were"),
            )
        elif found:
            self.has_shown = True
            shown = map(_format_json if self._as_json else self._format, found)
            await shared.write_to_stdout(b"".join(shown))

    def _format(self, piece: FoundLines) -> bytes:
        if self._prefixed:
            lines = prefix_lines(piece.host, piece.lines)
        else:
            key = piece.host, piece.file_id
            lines = self._endings.join("", key, piece.lines, end=piece.end, is_adjacent=True)
        return escape(lines) if self._for_terminal else lines


def _format_json(piece: FoundLines) -> bytes:
    known = piece._asdict()
    known["time"] = format_time(known.pop("stored_at"))
    for name in ("lines", "number", "file_id", "end", "records", "goes_on"):
        del known[name]
    texts = (line.decode("utf-8", "surrogateescape") for line in piece.split())
    return "".join(f"{json.dumps(known | {'line': text})}\n" for text in texts).encode()


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
    """Show one message, by default the last: its origin, headers and lines."""
    if host and sequence:
        raise click.UsageError("give SEQUENCE or --host, not both")

    async def read(connection: Connection) -> StreamMessage:
        if host and not stream:
            return await get_last_message(connection, await list_streams(connection), host)
        name = await choose_stream(connection, stream)
        if host:
            return await get_last_message(connection, [name], host)
        return await get_message(connection, name, sequence)

    found = shared.read_from_broker(settings, "get", read)
    if as_json:
        shared.print_json(serialize_message(found))
    else:
        write_bytes(format_message(found))


@click.command(cls=SectionedCommand)
@shared.JSON
@shared.option(
    "--kind", "GLOB", "Only kinds that match, such as 'client_*'; repeatable.", several="kinds"
)
@shared.option("--count", "N", "End after N events.", type=click.IntRange(min=1))
@shared.with_settings()
def events(
    settings: BrokerSettings, as_json: bool, kinds: tuple[str, ...], count: int | None
) -> None:
    """Show events at the broker as they happen: connections, refusals, changes, failures.

    If the broker has credentials, events of the server itself (clients, refusals, shutdowns) need
    the credential of an admin or a monitor.
    """

    def is_wanted(kind: str) -> bool:
        return any(fnmatchcase(kind, glob) for glob in kinds) if kinds else kind not in NOISE

    def select(connection: Connection) -> AsyncGenerator[BrokerEvent, None]:
        return (one async for one in listen(connection) if is_wanted(one.kind))

    async def show(event: BrokerEvent) -> None:
        line = printable(f"{event.time[:19]}Z {event.kind}: {event.text}")
        text = json.dumps(asdict(event)) if as_json else line
        await shared.write_to_stdout(f"{text}\n".encode("utf-8", "backslashreplace"))

    shared.show_each(settings, "events", select, show, count)
