"""What a store says beside files: how far source files were received, what never came, and the hosts that go elsewhere."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from receiver.storage.findings import Finding, FindingKind
from receiver.storage.store import SpanRow, Store

__all__ = [
    "GAP_REPORTS",
    "Missing",
    "Spans",
    "forget_spans",
    "gap_report",
    "leave",
    "lines_of",
    "missing",
    "put_gaps",
    "take_back",
    "take_over",
]

_FORGOTTEN = 30 * 24 * 3600 * 1_000_000_000  # nanoseconds behind the file that was read last
_MOST_CACHED = 50_000  # rows
_BEGIN = ("", "")


class Spans:
    """The spans of one partition."""

    def __init__(self, store: Store) -> None:
        """Have asked for nothing yet."""
        self._store = store
        self._known: dict[tuple[str, str], SpanRow | None] = {}
        self._news: dict[tuple[str, str], SpanRow] = {}

    def get(self, key: tuple[str, str], default: tuple[int, int]) -> tuple[int, int]:
        """Return the end of the last span of a source file, and when that was read in nanoseconds since the epoch."""
        row = self._news[key] if key in self._news else self._stored(key)
        return (row.until, row.read_at) if row else default

    def _stored(self, key: tuple[str, str]) -> SpanRow | None:
        if key not in self._known:
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[key] = self._store.span(*key)
        return self._known[key]

    def __setitem__(self, key: tuple[str, str], value: tuple[int, int]) -> None:
        """Remember how far a source file was received; in the store with the batch."""
        self._news[key] = SpanRow(*key, *value)

    def begin(self, sequence: int) -> None:
        """Remember the sequence up to which somebody else may have received messages, where nothing is known."""
        if not self._store.rows("SELECT 1 FROM spans LIMIT 1"):
            self[_BEGIN] = sequence, 0

    def put(self, batch: int) -> None:
        """Write what was noted, within the transaction of a batch."""
        self._store.put_spans(self._news.values(), batch)

    def stored(self) -> None:
        """Take what was noted as written."""
        self._known.update(self._news)
        self._news = {}

    def forget(self, now: int) -> None:
        """Forget the files that are too old, between batches only.

        `now` is in nanoseconds since the epoch: age counts by it or by the file that was read last, whichever is earlier.
        """
        where = "file != '' AND read_at BETWEEN 1 AND min(?, (SELECT max(read_at) FROM spans)) - ?"
        if not self._store.rows(f"SELECT 1 FROM spans WHERE {where} LIMIT 1", now, _FORGOTTEN):
            return
        with self._store.transaction():
            self._store.change(f"DELETE FROM spans WHERE {where}", now, _FORGOTTEN)
        self._known.clear()


GAP_REPORTS = ".gaps.p*.jsonl"
"""What the names of all reports in an output folder match."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What never came of a host's files: how many gaps, and of how many bytes in all."""

    gaps: int = 0
    size: int = 0


def gap_report(partition: int) -> str:
    """Return the name of a partition's report in the output folder."""
    return GAP_REPORTS.replace("*", str(partition))


def put_gaps(store: Store, gaps: Iterable[Finding], batch: int) -> None:
    """Write what a batch has shown never to have come, within its transaction."""
    store.change_all(
        "INSERT INTO gaps VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                *(gap.kind.value, gap.host, gap.file, gap.file_id, gap.start, gap.end),
                *(gap.sequence, gap.after, _iso(gap.since), _iso(gap.read_at), batch),
            )
            for gap in gaps
        ),
    )


def missing(store: Store) -> dict[str, Missing]:
    """Return by host what never came; that of a batch that is stored and not committed counts already."""
    query = "SELECT host, count(*), sum(until - start) FROM gaps GROUP BY host"
    return {
        str(host): Missing(int(str(gaps)), int(str(size))) for host, gaps, size in store.rows(query)
    }


def lines_of(gaps: Iterable[Finding], partition: int) -> bytes:
    """Return the lines of the report."""
    return b"".join(_line(gap, partition) for gap in gaps)


def _line(gap: Finding, partition: int) -> bytes:
    about: dict[str, object] = {
        "kind": gap.kind.value,
        "host": gap.host,
        "file": gap.file,
        "file_id": gap.file_id,
        "start": gap.start,
        "end": gap.end,
        "sequence": gap.sequence,
        "since": _iso(gap.since),
        "until": _iso(gap.read_at),
        "partition": partition,
        "bytes": gap.end - gap.start,
    }
    if gap.kind is FindingKind.LOSS:
        about["after"] = gap.after
    return json.dumps(about, separators=(",", ":")).encode() + b"\n"


def _iso(moment: int) -> str | None:
    if not 0 < moment < 2**62:
        return None
    return datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")


def leave(store: Store, paths: Iterable[str], batch: int) -> None:
    """Put live files aside for another partition, within the transaction of a batch; segments stay until they are taken."""
    for path in paths:
        store.change_files("UPDATE files SET left_in = ? WHERE path = ?", batch, path)


def take_over(store: Store, before: Store, host: str) -> None:
    """Take the files of a host over that another store has put aside; what is here already stays.

    The host's last batch there is committed, so that nothing of this is ever undone. Raises OSError, `Damaged`.
    """
    left = before.left_files(host)
    files = [
        row._replace(length_before=row.length, batch=0, left_in=0)
        for row in left
        if store.file(row.path) is None
    ]
    segments = [
        segment._replace(batch=0)
        for row in files
        for segment in before.segments("live = ?", row.path)
    ]
    spans = before.rows(
        "SELECT host, file, until, read_at FROM spans WHERE host = ? AND file != ''", host
    )
    with store.transaction():
        store.put_files(files)
        store.put_segments(segments)
        store.change_all(
            "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, 0) ON CONFLICT DO UPDATE SET "
            "until = max(until, excluded.until), read_at = max(read_at, excluded.read_at)",
            spans,
        )
    if not left:
        return  # a host may name any partition, whose store is not to be locked for nothing
    with before.transaction():
        for row in left:
            before.change_files("DELETE FROM files WHERE path = ?", row.path)
            before.change("DELETE FROM segments WHERE live = ?", row.path)


def take_back(store: Store, host: str) -> None:
    """Take the files of a host back that nobody took, in a transaction of its own."""
    if store.left_files(host):
        with store.transaction():
            store.change_files("UPDATE files SET left_in = 0 WHERE host = ?", host)


def forget_spans(store: Store, host: str) -> None:
    """Forget how far the source files of a host were received, in a transaction of its own."""
    with store.transaction():
        store.change("DELETE FROM spans WHERE host = ? AND file != ''", host)
