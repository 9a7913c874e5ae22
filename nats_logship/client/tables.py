"""Ask a broker for the tables that `logreceiver table` writes: their entries, and what waits."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client.answer import Denied, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.owners import ask_owner
from nats_logship.client.stream_state import count_by_subject
from nats_logship.client.table_status import TableStatus
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import TABLE_PREFIX, TableProgress, UnreadableProgress


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


async def collect_tables(connection: Connection, streams: Sequence[str]) -> tuple[TableStatus, ...]:
    """Return the state of each table by these streams; none if this user may not ask for them.

    Raises `Rejected`, `ConnectionLost`.
    """
    try:
        known = await read_tables(connection)
        infos = [await connection.api(f"STREAM.INFO.{name}") for name in streams]
        now = parse_time(infos[0]["ts"])
        return tuple([await _collect_table(connection, one, infos, now) for one in known])
    except Denied:
        return ()


async def _collect_table(
    connection: Connection, known: KnownTable, infos: Sequence[Mapping[str, Any]], now: int
) -> TableStatus:
    progress, behind, age = known.progress, 0, 0.0
    if progress is None:
        return TableStatus(id=known.id, readable=False)
    for info in infos:
        first = max(known.first_needed(info), int(info["state"]["first_seq"]))
        waiting = max(0, int(info["state"]["last_seq"]) + 1 - first)
        asked = {"seq": first, "next_by_subj": ">"}
        if waiting and (oldest := await find_message(connection, info["config"]["name"], asked)):
            age = max(age, (now - oldest.stored_at) / SECOND)
        behind += waiting
    running: bool | None = False
    if progress.presence:
        running, _ = await ask_owner(connection, progress.presence)
    return TableStatus(
        id=known.id,
        table=progress.table,
        owner=progress.owner,
        epoch=progress.epoch,
        committed_at=progress.committed_at,
        rows=progress.rows,
        files=progress.files,
        behind=behind,
        behind_seconds=age,
        running=running,
        between_runs=progress.once and progress.released,
    )
