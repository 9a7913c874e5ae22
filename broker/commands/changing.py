"""`logbroker pause`, `resume`, `purge`, `rm`, `stream` and `consumer`: what there is at the broker, and what of it goes."""

import json
import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import click
from pydantic import ValidationError

from broker.app.command_line import YES, SectionedCommand, SectionedGroup, ask
from broker.app.exits import OperatorError
from broker.app.table import show, table
from broker.app.units import Moment, format_size
from broker.app.untrusted import printable
from broker.client.answer import Rejected
from broker.client.bucket import Conflict, read, write
from broker.client.connection import Connection
from broker.commands import shared
from broker.inspect.ask import stream_named, streams_of
from broker.inspect.message import StoredMessage, message_document, message_text
from broker.inspect.reader import get_message
from broker.provision.apply import consumers_of
from broker.retention.purging import Choice, Purge, choose
from broker.retention.purging import purge as take_out
from broker.settings import BrokerSettings
from broker.wire.pause import (
    ALL_HOSTS,
    PAUSE_KEY,
    Pause,
    UnreadablePauses,
    decode_pauses,
    encode_pauses,
)
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET
from broker.wire.streams import STREAM as LOGS

logger = logging.getLogger(__name__)
_GLOBS = click.argument("globs", metavar="[HOST_GLOB]...", nargs=-1)
Pauses = tuple[Pause, ...]


@click.command(cls=SectionedCommand)
@_GLOBS
@click.option("--for", "length", metavar="TIME", type=shared.LENGTH, help="End it by itself then.")
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
    if as_json:
        shared.print_json([one.model_dump(mode="json") for one in pauses])
    else:
        shown = [printable(f"{one.hosts}: {one}") for one in pauses] or ["nothing is paused"]
        click.echo("\n".join(shown))


@click.command(cls=SectionedCommand)
@shared.HOSTS
@shared.PARTITIONS
@shared.moment("--before", "Only what was stored before")
@click.option("--everything", is_flag=True, help="All, unless another option says less.")
@shared.DRY_RUN
@shared.JSON
@YES
@shared.with_settings()
def purge(
    settings: BrokerSettings,
    hosts: tuple[str, ...],
    only: tuple[int, ...],
    before: Moment | None,
    everything: bool,
    dry_run: bool,
    as_json: bool,
    yes: bool,
) -> None:
    """Remove messages of the stream, after showing which: by host, partition or time."""
    if not (hosts or only or before is not None or everything):
        raise click.UsageError("say what is to go: --host, --partition, --before, or --everything")
    choice = Choice(hosts, only, before)
    chosen = shared.looking(settings, "purge", lambda connection: choose(connection, choice))
    if not as_json:
        _show_chosen(chosen)
    gone = None
    if chosen and not dry_run:
        if not yes:
            ask(f"Remove {sum(one.messages for one in chosen)} messages?")
        gone = shared.asking(settings, "purge", lambda connection: take_out(connection, chosen))
        logger.info("removed %d messages on request", gone)
    if as_json:
        shared.print_json({"matching": list(map(asdict, chosen)), "removed": gone})
    elif gone is not None:
        click.echo(f"removed {gone} messages")


def _show_chosen(chosen: Sequence[Purge]) -> None:
    parts = sorted(chosen, key=lambda one: -one.messages)
    click.echo(f"{sum(one.messages for one in parts)} messages match")
    if unreceived := sum(one.unreceived for one in parts):
        click.echo(f"NOT RECEIVED of that: {unreceived}; receivers will name them as missing")
    rows = [(one.filter, str(one.messages), str(one.until), one.stream) for one in parts]
    if rows:
        show(table(("SUBJECT", "MESSAGES", "BELOW", "STREAM"), rows))


@click.command(cls=SectionedCommand)
@shared.option(
    "--seq", "SEQ", "The message's sequence.", type=click.IntRange(1, 2**63), required=True
)
@shared.STREAM
@shared.DRY_RUN
@shared.JSON
@YES
@shared.with_settings()
def rm(
    settings: BrokerSettings, seq: int, stream: str | None, dry_run: bool, as_json: bool, yes: bool
) -> None:
    """Remove one message and overwrite it in the store, after showing it: one or more lines."""

    async def look_at(connection: Connection) -> tuple[str, StoredMessage]:
        name = await stream_named(connection, stream)
        return name, await get_message(connection, name, seq)

    name, message = shared.looking(settings, "rm", look_at)
    if not as_json:
        sys.stdout.buffer.write(message_text(message) + b"\n")
        sys.stdout.flush()
    if not dry_run:
        if not yes:
            ask(f"Remove message {seq} for good?")
        body = {"seq": seq, "no_erase": False}  # overwritten in the store as well
        shared.asking(
            settings, "rm", lambda c: c.api(f"STREAM.MSG.DELETE.{name}", body, patience=60)
        )
        click.echo(printable(f"removed message {seq} of {message.host}"), err=as_json)
        logger.info("removed message %d of %s, on request", seq, message.name)
    if as_json:
        shared.print_json({"message": message_document(message), "removed": not dry_run})


_BUCKETS = f"{CONFIG_BUCKET}|{OFFSETS_BUCKET}|{POSITIONS_BUCKET}"
_OWN = re.compile(rf"({LOGS}(_[0-9]+)?|KV_({_BUCKETS}))(\.receiver-p[0-9]+)?")
Info = Mapping[str, Any]


def _row(info: Info) -> Sequence[str]:
    """Return the cells of a stream, or of a consumer, as `_STREAMS` and `_CONSUMERS` name them."""
    config, state = info["config"], info.get("state")
    if state is None:
        counts = (info["num_pending"], info["num_ack_pending"], info["ack_floor"]["stream_seq"])
        return info["name"], info["stream_name"], _subjects(config), *map(str, counts)
    size = format_size(state["bytes"])
    return config["name"], _subjects(config), str(state["messages"]), size


def _subjects(config: Info) -> str:
    names = config.get("subjects") or config.get("filter_subjects")
    names = names or list(filter(None, [config.get("filter_subject")]))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more or "-"


def _group(kind: str, metavar: str, head: Sequence[str], left: int) -> click.Group:
    """Return the group of commands of a kind, streams or consumers, and the columns of its list, so many of them texts."""
    own = "logbroker's own" if kind == "stream" else "of receivers"
    group = SectionedGroup(kind, help=f"Show {kind}s, and remove those that are not {own}.")
    api, given = kind.upper(), click.argument("path", metavar=metavar, nargs=-1, callback=_path)

    @group.command(name="ls", help=f"List {kind}s; those of the streams named, by default of all.")
    @click.argument("streams", metavar="[STREAM]...", nargs=-1, callback=_names)
    @shared.JSON
    @shared.with_settings()
    def ls(settings: BrokerSettings, streams: tuple[str, ...], as_json: bool) -> None:
        async def listed(connection: Connection) -> list[Info]:
            if kind == "stream":
                return await connection.pages("STREAM.LIST", "streams")
            names = streams or await streams_of(connection)
            return [info for name in names for info in await consumers_of(connection, name)]

        found = shared.looking(settings, f"{kind} ls", listed)
        shared.print_json(found) if as_json else show(
            table(head, list(map(_row, found)), range(left))
        )

    @group.command(name="info", help=f"Show the configuration and the state of a {kind}.")
    @given
    @shared.JSON
    @shared.with_settings()
    def info(settings: BrokerSettings, path: str, as_json: bool) -> None:
        found = shared.looking(settings, f"{kind} info", lambda c: c.api(f"{api}.INFO.{path}"))
        shared.print_json(found) if as_json else show(
            table(("FIELD", "VALUE"), list(_flat(found)), (0, 1))
        )

    @group.command(name="rm", help=f"Remove a {kind} for good; not one of logbroker's own.")
    @given
    @shared.JSON
    @YES
    @shared.with_settings()
    def remove(settings: BrokerSettings, path: str, as_json: bool, yes: bool) -> None:
        _refuse_own(path)
        found = shared.looking(settings, f"{kind} rm", lambda c: c.api(f"{api}.INFO.{path}"))
        held = f" with {found['state']['messages']:,} messages" if "state" in found else ""
        if not yes:
            ask(f"Remove {kind} {path}{held} for good?")
        shared.asking(settings, f"{kind} rm", lambda c: c.api(f"{api}.DELETE.{path}"))
        click.echo(f"removed {kind} {path}{held}", err=as_json)
        if as_json:
            shared.print_json({"removed": path})

    return group


def _refuse_own(path: str) -> None:
    if _OWN.fullmatch(path):
        raise OperatorError(
            f"{path} is logbroker's own and stays; `logbroker purge` removes messages of a stream"
        )


def _names(_: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for one in names:
        if not one or not one.isprintable() or set(one) & set(" .*>/\\"):
            raise click.BadParameter(f"{one!r} cannot be the name of a stream or a consumer")
    return names


def _path(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> str:
    """Return the names of a stream, and perhaps a consumer, as the API takes them."""
    if len(names) != len(str(parameter.metavar).split()):
        raise click.BadParameter(f"give {parameter.metavar}")
    return ".".join(_names(context, parameter, names))


def _flat(values: Info, before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value if isinstance(value, str) else json.dumps(value)


_STREAMS = ("STREAM", "SUBJECTS", "MESSAGES", "SIZE")
_CONSUMERS = ("CONSUMER", "STREAM", "SUBJECTS", "PENDING", "UNACKED", "ACKED UNTIL")
stream = _group("stream", "STREAM", _STREAMS, 2)
consumer = _group("consumer", "STREAM CONSUMER", _CONSUMERS, 3)
