"""The commands `logreceiver offsets`: they say first what a move would mean, and write only over the offset that was looked at."""

import getpass
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click

from nats_logship.app.command_line import (
    YES_OPTION,
    SectionedGroup,
    confirm,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.locks import Locked, exclusive_lock
from nats_logship.app.program import log_to_stderr
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import format_datetime
from nats_logship.app.units import parse_moment
from nats_logship.client import bucket
from nats_logship.client.bucket import Conflict
from nats_logship.client.config import require_layout
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.client.find import LATEST, resolve_moment
from nats_logship.client.stream_state import StreamState, get_stream_state, require_stream
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.claim import find_end_of_files, moved
from receiver.driver.presence import is_gone
from receiver.settings import BROKER_FIELDS, ReceiverSettings
from receiver.status.status import Status, gather, waiting
from receiver.storage.adoption import adopt as take
from receiver.storage.damage import Damaged
from receiver.storage.folders import make_synced_folder
from receiver.storage.partition_folders import PartitionFolders, require_template

_PROGRAM = "logreceiver offsets"
_FIELDS = BROKER_FIELDS | {"partition"}
_LOCK_PATIENCE = 1.0  # seconds


@click.group(cls=SectionedGroup)
def offsets() -> None:
    """Show, and move by hand, from where on partitions are received."""


@offsets.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options(ReceiverSettings, _FIELDS)
def show(as_json: bool, **options: Any) -> None:
    """Show each partition's offset, its owner, and what waits behind it."""
    settings = _settings(options)
    wanted = settings.select_partitions if settings.partition else range
    partitions = ask_broker(settings, _PROGRAM, lambda c: gather(c, _now(), wanted), ELECTION)
    found = Status(partitions=partitions)
    if as_json:
        click.echo(found.model_dump_json(indent=2, include={"partitions"}))
    else:
        found.show()


@offsets.command("set")
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="A sequence, earliest, latest, or a time such as 2026-11-20T10:00+01:00 (UTC without a zone) or 2h.",
)
@YES_OPTION
@click.option("--force", is_flag=True, help="Also where a receiver is running, which this ends.")
@settings_options(ReceiverSettings, _FIELDS)
def set_(to: str, yes: bool, force: bool, **options: Any) -> None:
    """Move the offset of partitions; their files stay as they are, but for a batch that was never committed."""
    settings = _settings(options, needs_partition=True)

    async def proposed(connection: Connection) -> list[Move]:
        layout, now = await require_layout(connection), _now()
        return [
            await propose(connection, layout.stream_of(number), number, to, now)
            for number in settings.select_partitions(layout.partitions)
        ]

    async def move_all(connection: Connection) -> None:
        for move in proposals:
            await carry_out(connection, move)
            click.echo(f"partition {move.partition}: done")

    proposals = ask_broker(settings, _PROGRAM, proposed, ELECTION)
    for move in proposals:
        click.echo(f"partition {move.partition}: {move.words}")
        if move.objection and not force:
            raise OperatorError(f"partition {move.partition}: {move.objection}")
    if not yes:
        confirm("Do it?")
    ask_broker(settings, _PROGRAM, move_all)


@offsets.command()
@YES_OPTION
@settings_options(ReceiverSettings, _FIELDS | {"output", "state_dir", "path_template"})
def adopt(yes: bool, **options: Any) -> None:
    """Take the files in --output as they are: as all that was received before the offset, whatever the store says.

    For a store (p<N>.db in --state-dir) that is lost, damaged, or does not go with the offset or the files. Lines that
    were written and never committed stay, and may come a second time: it is your word that this is right. Behind an
    older store gaps are told of what the files have received since it was copied. No receiver may be running there.
    Where the offset itself is gone, the partition goes on behind what the store has of the files, and no line comes twice.
    """
    settings = _settings(options, needs_partition=True)
    output, state = settings.output.absolute(), settings.state.absolute()
    require_template(state, settings.path_template)

    async def look_at_all(connection: Connection) -> list[tuple[PartitionFolders, Offset | Move]]:
        layout, template = await require_layout(connection), settings.path_template
        count = layout.partitions
        all_folders = [
            PartitionFolders(output, state, one, template, count)
            for one in settings.select_partitions(count)
        ]
        return [
            (one, await _offset(connection, layout.stream_of(one.partition), one))
            for one in all_folders
        ]

    for folders, found in ask_broker(settings, _PROGRAM, look_at_all, ELECTION):
        at = f"partition {folders.partition}:"
        offset = found.moved if isinstance(found, Move) else found
        click.echo(
            f"{at} the files in {output} are taken as they are, and it goes on at sequence {offset.next}"
        )
        if not yes:
            confirm("Do it?")
        if isinstance(found, Move):
            ask_broker(settings, _PROGRAM, partial(carry_out, move=found))
            click.echo(f"{at} done")
        else:
            click.echo(f"{at} {format_count(_adopted(folders, offset), 'file')} adopted")


async def _offset(
    connection: Connection, stream: str, folders: PartitionFolders
) -> "Offset | Move":
    """Return the offset of a partition, or where that is gone a move to where its files end by the store.

    Where it was moved there already, as by this command when its answer was lost, it is moved once more.
    """
    partition, words, offset = folders.partition, "it has no offset", None
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    try:
        offset = Offset.decode(entry.value) if entry else None
    except UnreadableOffset as error:
        words = str(error)
    batch = None
    if offset is None or offset.moved_in:
        with suppress(Damaged, OSError):
            batch = folders.read_last_batch(0)
    if batch:
        end = find_end_of_files(batch, await get_stream_state(connection, stream), partition)
        if offset is None or offset.next == end:
            return await propose(connection, stream, partition, str(end), _now())
    if offset:
        return offset
    raise ConfigurationError(
        f"partition {partition}: {words}, and its store does not say where the files end; first "
        f"`logreceiver offsets set --partition {partition} --to earliest`, or to a sequence that "
        "you know"
    )


def _adopted(folders: PartitionFolders, offset: Offset) -> int:
    try:
        make_synced_folder(folders.state)
        with exclusive_lock(folders.state / f"p{folders.partition}.lock", _LOCK_PATIENCE):
            return take(folders, offset)
    except Locked as error:
        raise OperatorError(f"{error}: a receiver is running there; end it first") from None
    except OSError as error:
        raise OperatorError(f"{error.filename or folders.output}: {error.strerror}") from None


def _settings(options: dict[str, Any], *, needs_partition: bool = False) -> ReceiverSettings:
    settings = settings_from_options(ReceiverSettings, options)
    log_to_stderr(settings)
    if needs_partition and not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")
    return settings


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition's offset from the entry at `revision`, to be carried out or not.

    `words` are what it means, in messages; `objection` is why it should not be done now, empty for nothing.
    """

    partition: int
    revision: int
    moved: Offset
    words: str
    objection: str


async def propose(
    connection: Connection, name: str, partition: int, to: str, now: datetime
) -> Move:
    """Return what moving the offset of a partition in a stream would mean; raises ConfigurationError where `to` is no place in it."""
    stream = await require_stream(connection, name)
    sequence = await _sequence_of(connection, stream, to, now)
    at = connection, OFFSETS_BUCKET, offset_key(partition)
    entry = await bucket.read(*at)
    revision = entry.revision if entry else (await bucket.read_newest(*at)).revision
    offset = None
    with suppress(UnreadableOffset):
        offset = Offset.decode(entry.value) if entry else None
    by = f"{getpass.getuser()}@{socket.gethostname()} by hand"
    objection = ""
    if offset and offset.presence and not await is_gone(connection, offset.presence):
        objection = f"receiver {offset.owner} is running there; end it first, or stop it by moving the offset with --force"
    left = await waiting(connection, name, partition, sequence)
    way, skipped = f"on at sequence {sequence}", ""
    if offset and offset.stream_created == stream.created:
        way = f"from sequence {offset.next} to {sequence}"
        skipped = "; what waits before that is SKIPPED" if sequence > offset.next else ""
    return Move(
        partition,
        revision,
        moved(offset, stream, sequence, by, format_datetime(now, "milliseconds"), revision),
        f"{way}, {format_count(left, 'message', 'wait')} from there{skipped}",
        objection,
    )


async def _sequence_of(connection: Connection, stream: StreamState, to: str, now: datetime) -> int:
    """Return the sequence of a stream that `to` names; raises ConfigurationError for what is none, or not in the stream."""
    try:
        position = LATEST if to == "latest" else parse_moment(to, now)
    except ValueError as error:
        raise ConfigurationError(f"--to: {error}, or latest") from None
    sequence = max(await resolve_moment(connection, position, stream), 1)
    if sequence > stream.until or (isinstance(position, datetime) and position > now):
        raise ConfigurationError(
            f"--to {to}: stream {stream.name} ends at sequence {stream.until - 1}; give 1 to {stream.until}, earliest or latest"
        )
    return sequence


async def carry_out(connection: Connection, move: Move) -> None:
    """Write it; raises OperatorError when the entry has changed since, `Rejected`, `ConnectionLost`."""
    at = connection, OFFSETS_BUCKET, offset_key(move.partition)
    try:
        await bucket.write(*at, move.moved.encode(), move.revision)
    except Conflict:
        raise OperatorError(
            f"partition {move.partition}: its offset has changed meanwhile, so a receiver is running there; look again"
        ) from None
