"""What is known beside files: how far source files were received, what never came, and the hosts that go elsewhere."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from nats_logship.app.timestamps import to_datetime
from receiver.storage.findings import Ends, Finding
from receiver.storage.store import Store

_FORGOTTEN = 30 * 24 * 3600 * 1_000_000_000  # nanoseconds behind the file that was read last
_MOST_CACHED = 50_000  # rows

_GAP = "kind", "host", "file", "file_id", "start", "end", "sequence", "after", "since", "until"
"""What is kept of a gap, in the order of the columns."""

GAP_REPORTS = ".gaps.p*.jsonl"
"""What the names of all reports in an output folder match."""


class Spans(Ends):
    """The ends of one partition, as its store has them.

    The dict itself is a cache; what the store does not have yet is in `_news`, too.
    """

    def __init__(self, store: Store) -> None:
        """Know nothing yet."""
        super().__init__()
        self.store = store
        self._news: dict[tuple[str, str], tuple[int, int]] = {}

    def __missing__(self, key: tuple[str, str]) -> tuple[int, int]:
        if len(self) >= _MOST_CACHED:
            self.clear()
        found = self._news.get(key) or self.store.span(*key) or (-1, 0)
        super().__setitem__(key, found)
        return found

    def __setitem__(self, key: tuple[str, str], value: tuple[int, int]) -> None:
        """Remember how far a source file was received; in the store with the batch."""
        super().__setitem__(key, value)
        self._news[key] = value

    @property
    def unsaved(self) -> int:
        """How many source files the next batch writes to the store."""
        return len(self._news)

    def begin(self, sequence: int) -> None:
        """Remember the sequence up to which somebody else may have received messages, where nothing is known."""
        if not self.store.has_spans():
            self["", ""] = sequence, 0

    def put(self, batch: int) -> None:
        """Write what was noted, within the transaction of a batch."""
        self.store.put_spans(((*key, *value) for key, value in self._news.items()), batch)
        self._news = {}

    def forget(self, now: int) -> None:
        """Forget the files that are too old, between batches only.

        `now` is in nanoseconds since the epoch: age counts by it or by the file that was read last, whichever is earlier.
        """
        self.store.forget_old_spans(now, _FORGOTTEN)


def gap_report(partition: int) -> str:
    """Return the name of a partition's report in the output folder."""
    return GAP_REPORTS.replace("*", str(partition))


def lines_of(gaps: Iterable[Finding], partition: int) -> bytes:
    """Return the lines of the report."""
    found = ({**_told(gap), "partition": partition} for gap in gaps)
    lines = (json.dumps(one, separators=(",", ":")) for one in found)
    return "".join(f"{line}\n" for line in lines).encode()


def put_gaps(store: Store, gaps: Iterable[Finding], batch: int) -> None:
    """Write what a batch has shown never to have come, within its transaction."""
    store.put_gaps([*map(_told(gap).__getitem__, _GAP), batch] for gap in gaps)


def _told(gap: Finding) -> dict[str, object]:
    """Return what is said of a gap, in the report as in the store."""
    about, size = asdict(gap), gap.end - gap.start
    moments = {"since": _iso(gap.since), "until": _iso(about.pop("read_at"))}
    return {**about, "kind": gap.kind.value, **moments, "bytes": size}


def _iso(moment: int) -> str | None:
    if not 0 < moment < 2**62:
        return None
    return to_datetime(moment).isoformat(timespec="milliseconds")


def take_over(store: Store, before: Store, host: str) -> None:
    """Take the files of a host over that another store has put aside; what is here already stays.

    The host's last batch there is committed, so that nothing of this is ever undone. Raises OSError, `Damaged`.
    """
    left = before.all_files("left_in > 0 AND host = ?", host)
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
    spans = before.spans(host)
    with store.transaction():
        store.put_files(files)
        store.put_segments(segments)
        store.take_spans(spans)
    if left or spans:  # a host may name any partition: its store is not locked without a reason
        with before.transaction():
            before.forget_spans(host)
            before.forget_files(row.path for row in left)
            before.forget_segments_of(row.path for row in left)
