"""The tables that `logreceiver table` writes, by their entries in LOGS_OFFSETS."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker.inspect.streams import count_by_subject
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import (
    TABLE_PREFIX,
    TableProgress,
    UnreadableProgress,
)


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
