"""`logbroker pause`, `resume`, `purge`, `rm`, `stream` and `consumer`: what there is at the broker, and what of it goes."""

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import click
from pydantic import ValidationError

from broker.commands import shared
from broker.inspect.ask import stream_named, streams_of
from broker.inspect.message import StoredMessage, message_document, message_text
from broker.inspect.reader import get_message
from broker.provision.apply import list_consumers
from broker.retention import Purge, choose
from broker.retention import purge as take_out
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand, SectionedGroup
from nats_logship.app.exits import OperatorError
from nats_logship.app.text import format_count, format_names, printable
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import format_size
from nats_logship.client.answer import Rejected
from nats_logship.client.bucket import Conflict, read, write
from nats_logship.client.connection import Connection
from nats_logship.wire.pause import (
    ALL_HOSTS,
    PAUSE_KEY,
    Pause,
    UnreadablePauses,
    decode_pauses,
    encode_pauses,
)
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET
from nats_logship.wire.streams import STREAM as LOGS

logger = logging.getLogger(__name__)
_GLOBS = click.argument("globs", metavar="[HOST_GLOB]...", nargs=-1)
Pauses = tuple[Pause, ...]


@click.command(cls=SectionedCommand)
@_GLOBS
@click.option(
    "--for", "length", metavar="DURATION", type=shared.LENGTH, help="End it by itself then."
)
@shared.option("--reason", "TEXT", "Why; shown wherever the pause is.", default="")
@shared.JSON
@shared.with_settings()
def pause(
    settings: BrokerSettings,
    globs: tuple[str, ...],
    length: timedelta | None,
    reason: str,
    as_json: bool,
) -> None:
    """Have shippers publish nothing, within two seconds: those of all hosts, or of hosts that match.

    Their lines wait in their files. It lasts until `logbroker resume`, or as long as --for says.
    """
    user = os.environ.get("USER") or f"uid {os.getuid()}"
    by = f"{user}@{socket.gethostname()}"[:200]
    try:
        seconds = shared.now().replace(microsecond=0) + timedelta(seconds=1)  # rounded up
        until = seconds + length if length is not None else None
        names = dict.fromkeys(globs or (ALL_HOSTS,))
        made = [Pause(hosts=glob, until=until, reason=reason, by=by) for glob in names]
    except OverflowError:
        raise click.UsageError("--for is longer than a date can be") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise click.UsageError(f"{first['loc'][0]} {first['input']!r}: {first['msg']}") from None

    def change(value: bytes) -> Pauses:
        return (*(one for one in _in_force(value) if one.hosts not in names), *made)

    _change(settings, "pause", change, as_json=as_json)
    if not as_json:
        click.echo("shippers stop within two seconds; other clients do not")


@click.command(cls=SectionedCommand)
@_GLOBS
@shared.JSON
@shared.with_settings()
def resume(settings: BrokerSettings, globs: tuple[str, ...], as_json: bool) -> None:
    """End all pauses, or those whose hosts match: shippers go on where they were."""

    def change(value: bytes) -> Pauses:
        pauses = _in_force(value) if globs else ()
        return tuple(
            one
            for one in pauses
            if not any(glob == one.hosts or fnmatchcase(one.hosts, glob) for glob in globs)
        )

    _change(settings, "resume", change, as_json=as_json)


def _in_force(value: bytes) -> Pauses:
    try:
        return tuple(one for one in decode_pauses(value) if not one.is_over(shared.now()))
    except UnreadablePauses as error:
        raise OperatorError(
            f"the pauses at the broker cannot be read: {error}; `logbroker resume` without a glob removes them"
        ) from None


def _change(
    settings: BrokerSettings, command: str, change: Callable[[bytes], Pauses], *, as_json: bool
) -> None:
    """Change the pauses at the broker and print them."""

    async def changed(connection: Connection) -> Pauses:
        # if we die here, the entry is written or not, and the same command again does the same
        try:
            entry = await read(connection, CONFIG_BUCKET, PAUSE_KEY)
            pauses = change(entry.value if entry else b"")
            revision = entry.revision if entry else 0
            await write(connection, CONFIG_BUCKET, PAUSE_KEY, encode_pauses(pauses), revision)
        except Conflict:
            raise OperatorError("somebody else changed the pauses meanwhile; try again") from None
        except Rejected as error:
            if not error.is_nobody:
                raise
            raise OperatorError(
                "LOGS_CONFIG takes no entry: run `logbroker apply`, or this at the site that it copies"
            ) from None
        return pauses

    pauses = shared.asking(settings, command, changed)
    lines = [f"{one.hosts}: {one}" for one in pauses] or ["nothing is paused"]
    shared.show([one.model_dump(mode="json") for one in pauses], *lines, as_json=as_json)


@click.command(cls=SectionedCommand)
@shared.HOSTS
@shared.PARTITIONS
@shared.moment("--before", "Only what was stored before")
@click.option("--everything", is_flag=True, help="All, unless another option says less.")
@shared.asks_first
@shared.with_settings()
def purge(
    settings: BrokerSettings,
    mode: shared.Mode,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    before: Moment | None,
    everything: bool,
) -> None:
    """Remove messages of the stream, after showing which: by host, partition or time."""
    if not (hosts or only or before is not None or everything):
        raise click.UsageError("say what is to go: --host, --partition, --before, or --everything")
    chosen = shared.looking(settings, "purge", lambda c: choose(c, hosts, only, before))
    total = sum(one.messages for one in chosen)
    gone: int | None = None
    if not mode.as_json:
        _show_chosen(chosen, total)
    if chosen and mode.agrees(f"Remove {format_count(total, 'message')}?"):
        gone = shared.asking(settings, "purge", lambda connection: take_out(connection, chosen))
        mode.say(f"removed {format_count(gone, 'message')}")
        logger.info("removed %s on request", format_count(gone, "message"))
    if mode.as_json:
        shared.print_json({"matching": list(map(asdict, chosen)), "removed": gone})


def _show_chosen(chosen: Sequence[Purge], total: int) -> None:
    click.echo(format_count(total, "message", "match"))
    if needed_by := dict.fromkeys(who for one in chosen for who in one.needed_by):
        click.echo(f"NOT RECEIVED by {', '.join(needed_by)}; receivers name missing messages")
    for one in chosen:
        what = f"{one.messages} of {one.stream} below sequence {one.until}"
        click.echo(printable(f"{what}: {format_names(one.filters) or 'all'}"))


@click.command(cls=SectionedCommand)
@shared.option(
    "--seq", "SEQ", "The message's sequence.", type=click.IntRange(1, 2**63), required=True
)
@shared.STREAM
@shared.asks_first
@shared.with_settings()
def rm(settings: BrokerSettings, mode: shared.Mode, seq: int, stream: str | None) -> None:
    """Remove one message and overwrite it in the store, after showing it: one or more lines."""

    async def look_at(connection: Connection) -> tuple[str, StoredMessage]:
        name = await stream_named(connection, stream)
        return name, await get_message(connection, name, seq)

    name, message = shared.looking(settings, "rm", look_at)
    if not mode.as_json:
        sys.stdout.buffer.write(message_text(message) + b"\n")
        sys.stdout.flush()
    if is_agreed := mode.agrees(f"Remove message {seq} for good?"):
        call, body = f"STREAM.MSG.DELETE.{name}", {"seq": seq, "no_erase": False}
        shared.asking(settings, "rm", lambda connection: connection.api(call, body, patience=60))
        mode.say(printable(f"removed message {seq} of {message.host}"))
        logger.info("removed message %d of %s, on request", seq, message.name)
    if mode.as_json:
        shared.print_json({"message": message_document(message), "removed": is_agreed})


_BUCKETS = f"{CONFIG_BUCKET}|{OFFSETS_BUCKET}|{POSITIONS_BUCKET}"
_OWN = re.compile(rf"({LOGS}(_[0-9]+)?|KV_({_BUCKETS}))(\.receiver-p[0-9]+)?")
Info = Mapping[str, Any]


def _named(text: str) -> str:
    if not text or not text.isprintable() or set(text) & set(" .*>/\\"):
        raise ValueError(f"{text!r} cannot be the name of a stream or a consumer")
    return text


_NAME = shared.read_by(_named)


def _path(_: click.Context, __: click.Parameter, names: str | tuple[str, ...]) -> str:
    """Return the name of a stream, or of a stream and a consumer, as the API takes it."""
    return names if isinstance(names, str) else ".".join(names)


def _line(info: Info) -> str:
    """Return a stream, or a consumer, in a line."""
    if "state" not in info:
        pending, unacked = info["num_pending"], info["num_ack_pending"]
        name = f"{info['stream_name']} {info['name']}"
        return f"{name}: {format_count(pending, 'message')} pending, {unacked} not acknowledged"
    config, state = info["config"], info["state"]
    held = f"{format_count(state['messages'], 'message')}, {format_size(state['bytes'])}"
    return f"{config['name']}: {held}, {format_names(config.get('subjects') or ['no subjects'])}"


def _told(settings: BrokerSettings, kind: str, path: str) -> Info:
    call = f"{kind.upper()}.INFO.{path}"
    return shared.looking(settings, f"{kind} info", lambda connection: connection.api(call))


def _listed(settings: BrokerSettings, kind: str, streams: Sequence[str]) -> list[Info]:
    async def listed(connection: Connection) -> list[Info]:
        if kind == "stream":
            return await connection.list_all("STREAM.LIST", "streams")
        names = streams or await streams_of(connection)
        return [info for name in names for info in await list_consumers(connection, name)]

    return shared.looking(settings, f"{kind} ls", listed)


def _remove(settings: BrokerSettings, mode: shared.Mode, kind: str, path: str) -> None:
    if _OWN.fullmatch(path):
        raise OperatorError(
            f"{path} is logbroker's own and stays; `logbroker purge` removes messages of a stream"
        )
    state = _told(settings, kind, path).get("state")
    held = f" with {format_count(state['messages'], 'message', form=',')}" if state else ""
    if is_agreed := mode.agrees(f"Remove {kind} {path}{held} for good?"):
        call = f"{kind.upper()}.DELETE.{path}"
        shared.asking(settings, f"{kind} rm", lambda connection: connection.api(call))
        mode.say(f"removed {kind} {path}{held}")
    if mode.as_json:
        shared.print_json({"name": path, "removed": is_agreed})


def _group(kind: str, metavar: str) -> click.Group:
    """Return the group of commands of a kind, streams or consumers."""
    own = "logbroker's own" if kind == "stream" else "of receivers"
    group = SectionedGroup(kind, help=f"Show {kind}s, and remove those that are not {own}.")
    given = click.argument(
        "path", metavar=metavar, nargs=len(metavar.split()), type=_NAME, callback=_path
    )

    @group.command(help=f"List {kind}s; those of the streams named, by default of all.")
    @click.argument("streams", metavar="[STREAM]...", nargs=-1, type=_NAME)
    @shared.JSON
    @shared.with_settings()
    def ls(settings: BrokerSettings, streams: tuple[str, ...], as_json: bool) -> None:
        found = _listed(settings, kind, streams)
        shared.show(found, *map(_line, found), as_json=as_json)

    @group.command(help=f"Show the configuration and the state of a {kind}.")
    @given
    @click.option("--json", is_flag=True, expose_value=False, help="As JSON, as it is anyway.")
    @shared.with_settings()
    def info(settings: BrokerSettings, path: str) -> None:
        shared.print_json(_told(settings, kind, path))

    @group.command(name="rm", help=f"Remove a {kind} for good; not one of logbroker's own.")
    @given
    @shared.asks_first
    @shared.with_settings()
    def remove(settings: BrokerSettings, mode: shared.Mode, path: str) -> None:
        _remove(settings, mode, kind, path)

    return group


stream = _group("stream", "STREAM")
consumer = _group("consumer", "STREAM CONSUMER")
