"""How far each source file of a partition has been received: read from the store as it is asked for, written with a batch.

Files of which nothing came for a month are forgotten, and the oldest of a host that has too many: their next lines are
taken like the first of a new file.
"""

from receiver.storage.store import SpanRow, Store

__all__ = ["MOST_OF_HOST", "Spans"]

MOST_OF_HOST = 20_000
"""Source files that are remembered of one host."""
_MOST = 200_000  # source files of a partition
_FORGOTTEN = 30 * 24 * 3600 * 1_000_000_000  # nanoseconds behind the file that was read last
_MOST_CACHED = 50_000  # rows
_BEGIN = ("", "")

_told: set[tuple[str, str]] = set()
"""Stores and hosts of which this process has said that files were forgotten."""


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

    def forget(self, now: int) -> tuple[int, list[str]]:
        """Forget what is too old or too much; return how many files, and what is to be told of their hosts.

        Between batches only. `now` is in nanoseconds since the epoch: files are forgotten by it or by the file that was
        read last, whichever is earlier.
        """
        store = self._store
        (count, newest) = store.rows("SELECT count(*), max(read_at) FROM spans")[0]
        full = store.rows(
            "SELECT host FROM spans WHERE host != '' GROUP BY host HAVING count(*) > ?",
            MOST_OF_HOST,
        )
        oldest = min(now, int(str(newest or 0))) - _FORGOTTEN
        is_old = store.rows(
            "SELECT 1 FROM spans WHERE read_at BETWEEN 1 AND ? AND host != '' LIMIT 1", oldest
        )
        over = int(str(count)) - _MOST
        if not (full or is_old or over > 0):
            return 0, []
        hosts = [str(row[0]) for row in full]
        with store.transaction():
            self._mark(hosts, oldest, over)
            (forgotten,) = store.rows("SELECT count(*) FROM forgotten")[0]
            store.change(
                "INSERT INTO spans SELECT '', '', max(until), NULL, 0, NULL, 0 FROM forgotten WHERE file = '' HAVING count(*) "
                "ON CONFLICT DO UPDATE SET until = max(until, excluded.until)"
            )
            store.change(
                "DELETE FROM spans WHERE (host, file) IN (SELECT host, file FROM forgotten)"
            )
            store.change("DROP TABLE forgotten")
        self._known.clear()
        news = [host for host in hosts if (str(store.path), host) not in _told]
        _told.update((str(store.path), host) for host in hosts)
        return int(str(forgotten)), [_words(host) for host in news]

    def _mark(self, hosts: list[str], oldest: int, over: int) -> None:
        columns = "SELECT host, file, until FROM spans"
        order = "ORDER BY batch DESC, read_at DESC LIMIT -1 OFFSET"
        self._store.change(
            f"CREATE TEMP TABLE forgotten AS {columns} WHERE host != '' AND read_at BETWEEN 1 AND ?",
            oldest,
        )
        for host in hosts:
            self._store.change(
                f"INSERT INTO forgotten {columns} WHERE host = ? {order} ?", host, MOST_OF_HOST
            )
        if over > 0:
            self._store.change(f"INSERT INTO forgotten {columns} WHERE host != '' {order} ?", _MOST)


def _words(host: str) -> str:
    return (
        f"host {host} has sent lines of too many files, and the oldest are forgotten (a host has at most "
        f"{MOST_OF_HOST:,} that are remembered): gaps and repeats in these are not seen; find out what makes "
        "so many files there"
    )
