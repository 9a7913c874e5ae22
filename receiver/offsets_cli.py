"""The commands `logreceiver offsets`: show offsets, move them, adopt files.

A move is shown before it is done. It is written only if the offset has not changed since.
"""

import getpass
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from nats_logship.app.command_line import (
    YES_OPTION,
    SectionedGroup,
    confirm,
    settings_from_options,
    settings_options,
)
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import act_as_owner
from nats_logship.app.locks import Locked, exclusive_lock
from nats_logship.app.program import log_to_stderr
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import LATEST, format_datetime
from nats_logship.app.units import parse_moment
from nats_logship.client import bucket
from nats_logship.client.bucket import Conflict
from nats_logship.client.config import require_layout
from nats_logship.client.connection import ELECTION, Connection, ask_broker
from nats_logship.client.find import resolve_moment
from nats_logship.client.stream_state import StreamState, get_stream_state, require_stream
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, StreamLayout, offset_key
from receiver.consume.claim import describe_lost, find_end_of_files, move_offset
from receiver.driver.from_settings import make_partition_folders
from receiver.driver.partitions import request_partition_count
from receiver.driver.standby import is_gone
from receiver.settings import BROKER_FIELDS, ReceiverSettings
from receiver.status.status import Status, collect_partitions, count_waiting
from receiver.storage.damage import TO_EARLIEST, Damaged, Remedy
from receiver.storage.folders import make_synced_folder
from receiver.storage.partition_folders import PartitionFolders, require_template
from receiver.storage.recovery import adopt as adopt_files

Answer = TypeVar("Answer")

_PROGRAM = "logreceiver offsets"
_FIELDS = BROKER_FIELDS | {"partition"}
_LOCK_PATIENCE = 1.0  # seconds
_TO_SEQUENCE = Remedy(
    "set --partition {} --to N", "begins with message N, if you know where the files end"
)


@click.group(cls=SectionedGroup)
def offsets() -> None:
    """Show offsets (from where partitions are received), or move them by hand."""


@offsets.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options(ReceiverSettings, _FIELDS)
def show(as_json: bool, **options: Any) -> None:
    """Show the offset of each partition, its owner, and how many messages wait."""
    settings = _read_settings(options)
    select = settings.select_partitions if settings.partition else range
    partitions = _ask(settings, lambda c: collect_partitions(c, _now(), select))
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
    help="A sequence, earliest, latest, or a time such as 2026-11-20T10:00+01:00 (UTC without a "
    "zone) or 2h.",
)
@YES_OPTION
@click.option("--force", is_flag=True, help="Also if a receiver is running there; it ends then.")
@settings_options(ReceiverSettings, _FIELDS)
def set_(to: str, yes: bool, force: bool, **options: Any) -> None:
    """Move the offset of partitions.

    Received files stay as they are, except for lines of a batch that was never committed.
    """
    settings = _require_partition(_read_settings(options))

    async def propose_all(connection: Connection) -> list[Move]:
        layout, now = await require_layout(connection), _now()
        return [
            await propose(connection, layout.stream_of(number), number, to, now)
            for number in await _select(settings, connection, layout)
        ]

    moves = _ask(settings, propose_all)
    for move in moves:
        click.echo(f"partition {move.partition}: {move.summary}")
        if move.objection and not force:
            raise OperatorError(f"partition {move.partition}: {move.objection}")
    if not yes:
        confirm(f"Move the offset of {format_count(len(moves), 'partition')}?")
    ask_broker(settings, _PROGRAM, partial(_carry_out_all, moves))


async def _select(
    settings: ReceiverSettings, connection: Connection, layout: StreamLayout
) -> tuple[int, ...]:
    """Return the partitions that are meant, also of those that hosts have left."""
    return settings.select_partitions(await request_partition_count(connection, layout))


async def _carry_out_all(moves: "Sequence[Move]", connection: Connection) -> None:
    for move in moves:
        await carry_out(connection, move)
        click.echo(f"partition {move.partition}: done")


@offsets.command()
@YES_OPTION
@settings_options(ReceiverSettings, _FIELDS | {"output", "state_dir", "path_template"})
def adopt(yes: bool, **options: Any) -> None:
    """Take the files in --output as all that was received before the offset.

    For a store (p<N>.db in --state-dir) that is lost, damaged, or does not belong to the offset or
    the files. No receiver may be running there. Lines that were written but never committed stay,
    and may come a second time. After an older store was brought back, gaps are reported for lines
    that the files have received since. If the offset itself is gone, the partition goes on where
    the files end by the store, and no line comes twice.
    """
    settings = _require_partition(_read_settings(options))
    require_template(settings.state.absolute(), settings.path_template)

    async def find_all(connection: Connection) -> list[tuple[PartitionFolders, Offset | Move]]:
        layout = await require_layout(connection)
        numbers = await _select(settings, connection, layout)
        all_folders = [make_partition_folders(settings, layout, number) for number in numbers]
        return [
            (one, await _find_offset(connection, layout.stream_of(one.partition), one))
            for one in all_folders
        ]

    for folders, found in _ask(settings, find_all):
        at = f"partition {folders.partition}:"
        offset = found.moved if isinstance(found, Move) else found
        click.echo(
            f"{at} the files in {folders.output} are taken as they are, and it goes on at sequence "
            f"{offset.next}"
        )
        if not yes:
            confirm(f"Adopt the files of partition {folders.partition}?")
        if isinstance(found, Move):
            ask_broker(settings, _PROGRAM, partial(carry_out, move=found))
            click.echo(f"{at} done")
        else:
            click.echo(f"{at} {format_count(_adopt(folders, offset), 'file')} adopted")


async def _find_offset(
    connection: Connection, stream: str, folders: PartitionFolders
) -> "Offset | Move":
    """Return the offset of a partition; if it is gone, a move to the end of the store's files.

    An offset that was moved to that end, by this command whose answer was lost, is moved again.
    """
    partition, reason, offset = folders.partition, "it has no offset", None
    entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(partition))
    try:
        offset = Offset.decode(entry.value) if entry else None
    except UnreadableOffset as error:
        reason = str(error)
    batch = None
    if offset is None or offset.moved_in:
        with suppress(Damaged, OSError), act_as_owner(_owned_folder(folders)):
            batch = folders.read_last_batch(0)
    if batch:
        end = find_end_of_files(batch, await get_stream_state(connection, stream), partition)
        if offset is None or offset.next == end:
            return await propose(connection, stream, partition, str(end), _now())
    if offset:
        return offset
    reason = f"{reason}, and its store does not say where the files end"
    raise folders.advise(Damaged(partition, reason, (TO_EARLIEST, _TO_SEQUENCE)))


def _owned_folder(folders: PartitionFolders) -> Path:
    """Return the folder whose owner the receiver is."""
    return folders.state if folders.state.exists() else folders.output


def _adopt(folders: PartitionFolders, offset: Offset) -> int:
    """Adopt the files of a partition under its lock, as their owner; return how many."""
    lock = folders.state / f"p{folders.partition}.lock"
    try:
        with act_as_owner(_owned_folder(folders)):
            make_synced_folder(folders.state)
            with exclusive_lock(lock, _LOCK_PATIENCE):
                return adopt_files(folders, offset)
    except Locked as error:
        raise OperatorError(f"{error}: a receiver is running there; end it first") from None
    except OSError as error:
        raise OperatorError(f"{error.filename or folders.output}: {error.strerror}") from None


def _ask(settings: ReceiverSettings, call: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Ask the broker; again while it has no leader."""
    return ask_broker(settings, _PROGRAM, call, ELECTION)


def _read_settings(options: dict[str, Any]) -> ReceiverSettings:
    settings = settings_from_options(ReceiverSettings, options)
    log_to_stderr(settings)
    return settings


def _require_partition(settings: ReceiverSettings) -> ReceiverSettings:
    if not settings.partition:
        raise click.UsageError("--partition is required: a number from 0, several, or all")
    settings.require_share()
    return settings


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given


@dataclass(frozen=True, slots=True)
class Move:
    """A move of a partition's offset from the entry at `revision`, not yet done.

    `summary` says what it means, in messages; `objection` why it should not be done now, if at all.
    """

    partition: int
    revision: int
    moved: Offset
    summary: str
    objection: str


async def propose(
    connection: Connection, name: str, partition: int, to: str, now: datetime
) -> Move:
    """Return the move of a partition's offset to a place in a stream.

    Raises ConfigurationError if `to` is not a time.
    """
    stream = await require_stream(connection, name)
    sequence = await _find_sequence(connection, stream, to, now)
    at = connection, OFFSETS_BUCKET, offset_key(partition)
    entry = await bucket.read(*at)
    revision = entry.revision if entry else (await bucket.read_newest(*at)).revision
    offset = None
    with suppress(UnreadableOffset):
        offset = Offset.decode(entry.value) if entry else None
    by = f"{getpass.getuser()}@{socket.gethostname()} by hand"
    objection = ""
    if offset and offset.presence and not await is_gone(connection, offset.presence):
        objection = (
            f"receiver {offset.owner} is running there; end it first, or stop it by moving the "
            "offset with --force"
        )
    left = await count_waiting(connection, name, partition, sequence)
    way, skipped = f"on at sequence {sequence}", ""
    if offset and offset.stream_created == stream.created:
        way = f"from sequence {offset.next} to {sequence}"
        skipped = "; messages before that are SKIPPED" if sequence > offset.next else ""
    moment = format_datetime(now, "milliseconds")
    before = offset or describe_lost(stream, sequence, by, revision)
    return Move(
        partition=partition,
        revision=revision,
        moved=move_offset(before, stream, sequence, by, moment),
        summary=f"{way}, {format_count(left, 'message', 'wait')} from there{skipped}",
        objection=objection,
    )


async def _find_sequence(
    connection: Connection, stream: StreamState, to: str, now: datetime
) -> int:
    """Return the sequence that `to` names; raises ConfigurationError if it is not in the stream."""
    try:
        position = LATEST if to == "latest" else parse_moment(to, now)
    except ValueError as error:
        raise ConfigurationError(f"--to: {error}, or latest") from None
    sequence = max(await resolve_moment(connection, position, stream), 1)
    if sequence > stream.until or (isinstance(position, datetime) and position > now):
        raise ConfigurationError(
            f"--to {to}: stream {stream.name} ends at sequence {stream.until - 1}; give 1 to "
            f"{stream.until}, earliest or latest"
        )
    return sequence


async def carry_out(connection: Connection, move: Move) -> None:
    """Write the moved offset.

    Raises OperatorError if the entry has changed since `propose`, `Rejected`, `ConnectionLost`.
    """
    at = connection, OFFSETS_BUCKET, offset_key(move.partition)
    try:
        await bucket.write(*at, move.moved.encode(), move.revision)
    except Conflict:
        raise OperatorError(
            f"partition {move.partition}: its offset has changed meanwhile, so a receiver is "
            "running there; nothing was changed: end it, or run this again with --force"
        ) from None
