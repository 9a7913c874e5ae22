"""How far source files were received, by the store; gaps; and files of hosts that move."""

from collections.abc import Iterable

from receiver.storage.anomalies import Anomaly, SpanEnds
from receiver.storage.store import Store

_FORGOTTEN = 30 * 24 * 3600 * 1_000_000_000  # nanoseconds after which a source file is forgotten
_MOST_CACHED = 50_000  # rows

_GAP_COLUMNS = (
    *("kind", "host", "file", "file_id", "start", "end"),
    *("sequence", "after", "since", "until", "unit"),
)


class StoredSpanEnds(SpanEnds):
    """The ends of one partition: a cache of the store, and what the batch has received since."""

    def __init__(self, store: Store) -> None:
        """Begin with an empty cache."""
        super().__init__()
        self._store = store
        self._has_begun = False
        self._unsaved: dict[tuple[str, str], tuple[int, int]] = {}

    def __missing__(self, key: tuple[str, str]) -> tuple[int, int]:
        if len(self) >= _MOST_CACHED:
            self.clear()
        found = self._unsaved.get(key) or self._store.find_span(*key) or (-1, 0)
        super().__setitem__(key, found)
        return found

    def __setitem__(self, key: tuple[str, str], value: tuple[int, int]) -> None:
        """Note how far a source file was received; `store` writes that to the store."""
        super().__setitem__(key, value)
        self._unsaved[key] = value

    @property
    def unsaved(self) -> int:
        """How many source files the next batch writes to the store."""
        return len(self._unsaved)

    def begin(self, sequence: int) -> None:
        """Note, for a store without spans, up to where others may have received messages."""
        if not self._has_begun and not self._store.has_spans():
            self["", ""] = sequence, 0
        self._has_begun = True

    def store(self, batch: int) -> None:
        """Write what was noted, within the transaction of a batch."""
        rows = ((*key, *value) for key, value in self._unsaved.items())
        self._store.put_spans(rows, batch)
        self._unsaved = {}

    def forget_old(self, now: int) -> None:
        """Forget source files of which nothing came for 30 days, between batches only.

        Age counts from `now`, in nanoseconds since the epoch, or from the file that was read last,
        whichever is earlier.
        """
        self._store.forget_old_spans(now, _FORGOTTEN)


def put_gaps(store: Store, gaps: Iterable[Anomaly], batch: int) -> None:
    """Write gaps and losses that a batch has shown, within its transaction."""
    rows = (gap.as_row() for gap in gaps)
    store.put_gaps([*(row[column] for column in _GAP_COLUMNS), batch] for row in rows)


def take_over_files(store: Store, before: Store, host: str) -> None:
    """Take the rows of a host's files from the store of the partition that the host has left.

    Rows that `store` has already stay. The host's last batch in `before` is committed, so that no
    undo changes them. Raises OSError, `Damaged`.
    """
    left = before.list_left_files(host)
    files = [
        row._replace(length_before=row.length, batch=0, left_in=0)
        for row in left
        if store.find_file(row.path) is None
    ]
    segments = [
        segment._replace(batch=0) for row in files for segment in before.list_segments_of(row.path)
    ]
    spans = before.list_spans(host)
    with store.transaction():
        store.put_files(files)
        store.put_segments(segments)
        store.merge_spans(spans)
    if left or spans:  # any client may name any partition: lock its store only if it has rows
        with before.transaction():
            before.forget_spans(host)
            before.forget_files(row.path for row in left)
            before.forget_segments_of(row.path for row in left)
