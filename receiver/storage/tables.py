"""What a store says beside files: how far source files were received, what never came, and the hosts that go elsewhere."""

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from receiver.storage.store import SpanRow, Store

__all__ = [
    "GAP_REPORTS",
    "Gap",
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
    """The spans of one partition.

    The file `""` of a host stands for its messages: the end is the sequence of the last one. That of the host `""` is
    the sequence up to which messages of hosts that are not known may have been received.
    """

    def __init__(self, store: Store) -> None:
        """Have asked for nothing yet."""
        self._store = store
        self._known: dict[tuple[str, str], SpanRow | None] = {}
        self._news: dict[tuple[str, str], SpanRow] = {}

    def _row(self, host: str, file: str) -> SpanRow | None:
        key = (host, file)
        if key in self._news:
            return self._news[key]
        if key not in self._known:
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[key] = self._store.span(host, file)
        return self._known[key]

    def reached(self, host: str, file: str) -> int | None:
        """Return the end of the last span of a source file, None when no lines of it have come yet."""
        row = self._row(host, file)
        return row.until if row else None

    def read_at(self, host: str, file: str) -> int:
        """Return when the last lines of a source file were read, in nanoseconds since the epoch; 0 when unknown."""
        row = self._row(host, file)
        return row.read_at if row else 0

    def note(self, host: str, file: str, end: int, read_at: int) -> None:
        """Remember that a source file has been received up to `end`; in the store with the batch."""
        self._news[host, file] = SpanRow(host, file, end, read_at)

    def begin(self, sequence: int) -> None:
        """Remember the sequence up to which somebody else may have received messages, where nothing is known."""
        if not self._store.rows("SELECT 1 FROM spans LIMIT 1"):
            self.note(*_BEGIN, sequence, 0)

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

_COLUMNS = "kind, host, file, file_id, start, until, sequence, after, since, read_at"


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes `[start, until)` of a source file that never came, or a loss, of which no bytes are known.

    `sequence` is that of the message that showed it, which was read at `read_at`, the one before at `since` (RFC 3339). Of a
    loss `after` is the last message before it.
    """

    kind: str
    host: str
    file: str
    file_id: str
    start: int
    until: int
    sequence: int
    after: int
    since: str | None
    read_at: str | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What never came of a host's files: how many gaps, and of how many bytes in all."""

    gaps: int = 0
    size: int = 0


def gap_report(partition: int) -> str:
    """Return the name of a partition's report in the output folder."""
    return GAP_REPORTS.replace("*", str(partition))


def put_gaps(store: Store, gaps: Iterable[Gap], batch: int) -> None:
    """Write what a batch has shown, within its transaction."""
    store.change_all(
        f"INSERT INTO gaps ({_COLUMNS}, batch) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
        ((*astuple(gap), batch) for gap in gaps),
    )


def missing(store: Store) -> dict[str, Missing]:
    """Return by host what never came; that of a batch that is stored and not committed counts already."""
    query = "SELECT host, count(*), sum(until - start) FROM gaps GROUP BY host"
    return {
        str(host): Missing(int(str(gaps)), int(str(size))) for host, gaps, size in store.rows(query)
    }


def lines_of(gaps: Iterable[Gap], partition: int) -> bytes:
    """Return the lines of the report."""
    return b"".join(_line(gap, partition) for gap in gaps)


def _line(gap: Gap, partition: int) -> bytes:
    about: dict[str, object] = {
        "kind": gap.kind,
        "host": gap.host,
        "file": gap.file,
        "file_id": gap.file_id,
        "start": gap.start,
        "end": gap.until,
        "sequence": gap.sequence,
        "since": gap.since,
        "until": gap.read_at,
        "partition": partition,
        "bytes": gap.until - gap.start,
    }
    if gap.kind == "loss":
        about["after"] = gap.after
    return json.dumps(about, separators=(",", ":")).encode() + b"\n"


def leave(store: Store, paths: Iterable[str], batch: int) -> None:
    """Put live files aside for another partition, within the transaction of a batch; segments stay until they are taken.

    A day's file that the same batch has closed, as the day is over, may get more lines of that day there.
    """
    gone = list(paths)
    store.change_all(
        "DELETE FROM segments WHERE path = ? AND path = live AND batch = ?",
        ((path, batch) for path in gone),
    )
    store.change_all(
        "INSERT OR REPLACE INTO left_files SELECT *, ? FROM files WHERE path = ?",
        ((batch, path) for path in gone),
    )
    store.forget_files(gone)


def take_back(store: Store, where: str, *values: object) -> None:
    """Take the files back that were put aside, and for which a condition holds, in a transaction of its own."""
    if not (found := store.left_files(where, *values)):
        return
    with store.transaction():
        store.put_files(row for row in found if store.file(row.path) is None)
        store.change(f"DELETE FROM left_files WHERE {where}", *values)


def take_over(store: Store, before: Store, host: str) -> None:
    """Take the files of a host over that another store has put aside; what is here already stays.

    The host's last batch there is committed, so that nothing of this is ever undone. Raises OSError, `Damaged`.
    """
    left = before.left_files("host = ?", host)
    files = [
        row._replace(length_before=row.length, batch=0)
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
        gone = [(row.path,) for row in left]
        before.change_all("DELETE FROM left_files WHERE path = ?", gone)
        before.change_all("DELETE FROM segments WHERE live = ?", gone)


def forget_spans(store: Store, host: str) -> None:
    """Forget how far the source files of a host were received, in a transaction of its own."""
    with store.transaction():
        store.change("DELETE FROM spans WHERE host = ? AND file != ''", host)
