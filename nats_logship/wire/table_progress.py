"""How far a table has the lines of the streams: its entry in the bucket LOGS_OFFSETS.

The log of the table itself is the truth; the entry says which messages retention must keep, who
writes the table, and where it is.
"""

import re

import msgspec

TABLE_PREFIX = "table-"
"""With the id of a table, its key in LOGS_OFFSETS."""

_VERSION = 1
_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")


class UnreadableProgress(ValueError):
    """The entry is damaged, or of a later version."""


class StreamProgress(msgspec.Struct, frozen=True):
    """The first sequence `next` that a table does not have, of the stream created at `created`."""

    created: str
    next: int


class TableProgress(msgspec.Struct, frozen=True):
    """How far a table is written, by stream, and by whom. Times are RFC 3339.

    `table` is its address without secrets. A higher `epoch` fences lower ones. The owner answers at
    `presence` (empty: it cannot); `released` says that it has ended in order, `once` that it is run
    now and then (`--once`). The table has so many `files`.
    """

    table: str
    owner: str
    epoch: int = 1
    streams: dict[str, StreamProgress] = {}
    presence: str = ""
    committed_at: str = ""
    rows: int = 0
    files: int = 0
    released: bool = False
    once: bool = False
    version: int = _VERSION

    def encode(self) -> bytes:
        """Return the value of the entry: JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "TableProgress":
        """Read the value of an entry; raises `UnreadableProgress`."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except (ValueError, RecursionError) as error:
            raise UnreadableProgress(f"not the progress of a table: {error}") from None
        if found.version != _VERSION or not _PRESENCE.fullmatch(found.presence):
            raise UnreadableProgress(f"not the progress of a table, version {_VERSION}")
        return found

    def first_needed(self, stream: str, created: str, until: int) -> int:
        """Return the first sequence that retention must keep of a stream that ends before `until`.

        0 if the table has nothing of the stream as it is now: it may need all of it.
        """
        found = self.streams.get(stream)
        is_same = found is not None and found.created == created and found.next <= until
        return found.next if found is not None and is_same else 0


def table_key(table_id: str) -> str:
    """Return the key of a table's entry."""
    return f"{TABLE_PREFIX}{table_id}"
