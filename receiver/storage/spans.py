"""How far each source file of a partition has been received: read from the store as it is asked for, written with a batch.

Files of which nothing came for a month are forgotten: their next lines are taken like the first of a new file.
"""

from receiver.storage.store import SpanRow, Store

__all__ = ["Spans"]

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
