"""Ask a broker for its streams, messages by subject, tables, pauses, and the interval of rounds."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nats_logship.app.exits import OperatorError
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.config import read_interval, read_layout
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.wire.pause import PAUSE_KEY, Pause, UnreadablePauses, decode_pauses
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, StreamLayout
from nats_logship.wire.table_progress import (
    TABLE_PREFIX,
    TableProgress,
    UnreadableProgress,
)

_PATIENCE = 30.0  # seconds for a page of subjects
logger = logging.getLogger(__name__)


async def read_known_layout(connection: Connection) -> StreamLayout:
    """Return what `read_layout` returns; 0 partitions in one stream if the broker has no bucket.

    Such a broker was not set up by logbroker. Raises what `read_layout` raises, also while the
    leader of the bucket is being elected.
    """
    try:
        return await read_layout(connection) or StreamLayout(0)
    except Rejected as refused:
        if refused.is_nobody:  # there is no bucket, or it has no leader
            try:
                await connection.api(f"STREAM.INFO.KV_{CONFIG_BUCKET}")
            except Rejected as error:
                refused = error
        if refused.is_leaderless:
            raise
        return StreamLayout(0)


def require_partitions(
    wanted: Iterable[int], layout: StreamLayout, configs: Iterable[Mapping[str, Any]]
) -> None:
    """Raise `OperatorError` for a partition that none of the streams, of these `configs`, holds.

    A broker that was not set up by logbroker may hold any.
    """
    held = {number for one in configs for number in layout.partitions_in(one)}
    if layout.partitions and (absent := sorted({*wanted} - held)):
        raise OperatorError(
            f"partition {absent[0]} does not exist: the broker has {len(held)}, 0 to {max(held)}"
        )


async def list_streams(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams that hold the lines.

    Raises `Rejected`, `ConnectionLost`, `ConfigurationError`.
    """
    return (await read_known_layout(connection)).names


async def choose_stream(connection: Connection, name: str | None) -> str:
    """Return the stream of this name; without a name the only one.

    Raises `OperatorError` if there is no such stream, or none is named and there are several.
    """
    names = await list_streams(connection)
    if name not in names and (name or len(names) > 1):
        raise OperatorError(f"--stream must be one of {', '.join(names)}")
    return name or names[0]


async def count_by_subject(
    connection: Connection, streams: Sequence[str], wanted: str = ">"
) -> dict[str, int]:
    """Return the number of messages on each subject that matches `wanted`.

    Raises `Rejected`, `ConnectionLost`.
    """
    found: dict[str, int] = {}
    for stream in streams:
        own: dict[str, int] = {}
        total = 1
        while len(own) < total:
            body = {"subjects_filter": wanted, "offset": len(own)}
            info = await connection.api(f"STREAM.INFO.{stream}", body, patience=_PATIENCE)
            page, total = info["state"].get("subjects") or {}, info.get("total", 0)
            # new and removed subjects shift the pages, so a page may hold nothing new
            if page.keys() <= own.keys():
                break
            own |= page
        found |= own
    return found


async def read_pauses(connection: Connection) -> tuple[Pause, ...]:
    """Return the pauses in force; none, and a warning in the log, if they are unreadable.

    Raises `ConnectionLost`.
    """
    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
        pauses = decode_pauses(entry.value) if entry else ()
    except Rejected:  # there is no bucket, or this user may not read it
        return ()
    except UnreadablePauses as error:
        logger.warning("the pauses cannot be read, so no host is paused: %s", error)
        return ()
    now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
    return tuple(one for one in pauses if not one.is_over(now))


async def read_interval_in_force(connection: Connection, now: int) -> float:
    """Return the shortest interval between two rounds of a host in seconds; 0 if there is none.

    `now` is the broker's clock, in nanoseconds since the epoch. Raises `ConnectionLost`.
    """
    try:
        return (await read_interval(connection)).in_force(now)
    except Rejected:  # there is no bucket, or this user may not read it
        return 0.0


class KnownTable(NamedTuple):
    """A table by its id; `progress` is None if the entry cannot be read."""

    id: str
    progress: TableProgress | None

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"table {self.progress.table if self.progress else self.id}"

    def first_needed(self, info: Mapping[str, Any]) -> int:
        """Return the first sequence of a stream, by STREAM.INFO, that the table may still need."""
        if self.progress is None:
            return 1
        until = int(info["state"]["last_seq"]) + 1
        return max(1, self.progress.first_needed(info["config"]["name"], info["created"], until))


async def read_tables(connection: Connection) -> list[KnownTable]:
    """Return the tables that are written, or were and are not forgotten.

    Only leaders are asked: a replica may not know of a new table. Raises `Rejected`,
    `ConnectionLost`.
    """
    stream, prefix = f"KV_{OFFSETS_BUCKET}", f"$KV.{OFFSETS_BUCKET}.{TABLE_PREFIX}"
    try:
        subjects = await count_by_subject(connection, [stream], f"$KV.{OFFSETS_BUCKET}.*")
    except Rejected as error:
        if error.is_absent:
            return []  # without the bucket no partition is committed, and nothing is purged
        raise
    found = []
    for subject in sorted(one for one in subjects if one.startswith(prefix)):
        entry = await find_message(connection, stream, {"last_by_subj": subject})
        if entry is None or "KV-Operation" in entry.headers:
            continue  # a person has had it forgotten
        try:
            progress = TableProgress.decode(entry.payload)
        except UnreadableProgress:
            progress = None
        found.append(KnownTable(subject.removeprefix(prefix), progress))
    return found
