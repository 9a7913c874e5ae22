"""Finds lines in a Delta table of `logreceiver table`: what is older than the streams.

    with History.open("/srv/logs/table") as history:
        query = Query(LineSelection(("web*",)), match="timeout")
        for line in history.find(query, limit=100, order=Order.NEWEST):
            ...

A `History` reads the version of the table that was the newest when it was opened, so nothing that
is written meanwhile disturbs it. It is for one search at a time, in a thread; `cancel` and
`progress` are for other threads. It needs the extra `table`. Times are those of storage, in
nanoseconds since the epoch; a table has them in microseconds.
"""

import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from threading import Lock, Timer
from typing import Any, NamedTuple, TypeVar

from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import format_time, to_datetime
from nats_logship.app.units import format_size
from nats_logship.client.stream_state import StreamState
from nats_logship.table_files import TableFile, TableVersion
from nats_logship.table_pieces import IS_CUT, NEARBY, show_rows, show_whole
from nats_logship.table_query import (
    COLUMNS,
    Line,
    Order,
    Query,
    as_text,
    make_condition,
    order_by,
)
from nats_logship.table_steps import (
    by_record,
    cut_records,
    is_complete,
    pack,
    pack_in_order,
    sort_files,
    split_certain,
)

__all__ = [
    "Cancelled",
    "History",
    "Line",
    "Order",
    "Query",
    "SearchLimits",
    "SearchProgress",
    "by_record",
]

FOLDER = "logship-search-"
"""Folders of what memory cannot hold begin with it, then the process id."""
_FETCHED = 2000  # rows at a time
_AGAIN = 0.05  # seconds until a call is interrupted again
_RECORD = "stream, sequence, file, record"
_HAS_RECORDS = "SELECT 1 FROM lines WHERE record IS DISTINCT FROM pos LIMIT 1"
Result = TypeVar("Result")


class Cancelled(Exception):
    """`History.cancel` was called."""


class SearchProgress(NamedTuple):
    """How many bytes of files were searched, of how many, and the time that was reached.

    `until` is the last time of which all lines were searched, in the order of the search; None
    before the first.
    """

    bytes: int = 0
    of: int = 0
    until: int | None = None


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What a call may take: seconds (None: any time), and bytes of memory."""

    seconds: float | None = 60.0
    memory: int = 512 * 1024 * 1024


class History:
    """A version of a table, and a search in it."""

    def __init__(self, version: TableVersion, limits: SearchLimits) -> None:
        """Search a version; see `open`."""
        import duckdb

        self.progress = SearchProgress()
        """How far the search is."""
        self._version, self._limits = version, limits
        self._whole = set[str]()  # paths of files that have all of their lines and records
        self._ended_by: Exception | None = None
        self._in_call = Lock()
        folder = tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-")
        self._remove_folder = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{limits.memory}B",
            "temp_directory": folder,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._duckdb = duckdb.connect(":memory:", config=settings)
        self._duckdb.execute("SET TimeZone = 'UTC'")

    @classmethod
    def open(
        cls,
        table: str,
        options: Mapping[str, str] | None = None,
        limits: SearchLimits = SearchLimits(),
    ) -> "History":
        """Open the newest version of a table: a folder, or an address such as s3://bucket/logs.

        `options` are those of delta-rs for the object store. Raises `ConfigurationError` if
        packages are missing, `OperatorError` if the table cannot be read.
        """
        return cls(TableVersion.read(table, options or {}), limits)

    def another(self) -> "History":
        """Return a `History` of the same version, for another search at the same time."""
        return History(self._version, self._limits)

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End a search that runs in another thread, and give back what it holds."""
        self.cancel()
        while not self._in_call.acquire(timeout=_AGAIN):
            self._duckdb.interrupt()  # it may have begun after the first one
        try:
            self._duckdb.close()
            self._remove_folder()
        finally:
            self._in_call.release()

    @property
    def ends(self) -> int:
        """When its last line was stored, or a little later; 0 without lines."""
        return max((one.ends * 1000 + 999 for one in self._version.files), default=0)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(one.size for one in self._version.files)

    def cancel(self) -> None:
        """Have the call that runs, and each later one, end with `Cancelled`."""
        self._end(Cancelled())

    def next_sequence(self, state: StreamState) -> int | None:
        """Return the first sequence of a stream that is newer than this version; None: all are.

        A stream that was restored from a known one is the same up to where that ended.
        """
        found = self._version.transaction(state.name, state.created)
        for one in reversed(state.ancestors if found is None else ()):
            if (known := self._version.transaction(state.name, one.created)) is not None:
                return min(known, one.until)
        return found

    def range_before(self, state: StreamState) -> tuple[int, int]:
        """Return the sequences `[first, until)` of a stream from before the table began.

        Raises as `find`.
        """
        if self.next_sequence(state) is None:
            return state.first, state.first
        return state.first, max(state.first, self._first_sequence(state) or 0)

    def _first_sequence(self, state: StreamState) -> int | None:
        shared = [(f"{state.name}/{one.created}", one.until) for one in state.ancestors]
        known = dict([*shared, (state.key, state.until)])
        files = [
            one
            for one in self._version.files
            if any(one.streams[0] <= stream <= one.streams[1] for stream in known)
        ]
        is_known = " OR ".join("stream = ? AND sequence < ?" for _ in known)
        sql = f"SELECT min(sequence) FROM lines WHERE {is_known}"
        values = [value for pair in known.items() for value in pair]
        with self._searching(files):
            for some in pack(sort_files(files, Order.OLDEST)):
                for (found,) in self._ask(sql, values, some):
                    if found is not None:
                        return int(found)
        return None

    def find(
        self, query: Query, limit: int | None = None, order: Order = Order.NEWEST
    ) -> Iterator[Line]:
        """Yield lines in order; at most `limit` of them or, if there are records, of these.

        Raises `Cancelled`, and `OperatorError` if the files are gone, or a limit is exceeded.
        """
        if limit is not None:
            for some in self.find_first(query, limit, order):
                yield from some
            return
        files = self._choose(query)
        with self._searching(files):
            for step in pack_in_order(files, order):
                yield from self._search(step, query, "", order)
                self._note(step, order)

    def find_first(self, query: Query, limit: int, order: Order) -> Iterator[Sequence[Line]]:
        """Yield the first lines, as soon as it is certain that they are; raises as `find`."""
        found: Sequence[Line] = []
        files = self._choose(query)
        with self._searching(files):
            steps = [*pack(sort_files(files, order))]
            for some, following in zip_longest(steps, steps[1:]):
                found = [*found, *self._search(some, query, f"LIMIT {limit}", order)]
                certain, found = split_certain(cut_records(found, limit, order), following, order)
                self._note(some, order, following)
                yield certain
                limit -= len([*by_record(certain)])
                if limit <= 0:
                    break

    def count_in_steps(self, query: Query, step: int) -> Iterator[Counter[tuple[int, str]]]:
        """Count lines by the multiple of `step` (nanoseconds) before them, and by level.

        Yields what each step of the search adds, from the newest on. Lines without a level have the
        level "". Raises as `find`.
        """
        files = self._choose(query)
        columns = f"epoch_us(time) // {step // 1000} * {step}, coalesce(level, ''), count(*)"
        with self._searching(files):
            steps = [*pack(sort_files(files, Order.NEWEST))]
            for some, following in zip_longest(steps, steps[1:]):
                rows = self._select(columns, some, query, "GROUP BY ALL")
                yield Counter({(time, level): number for time, level, number in rows})
                self._note(some, Order.NEWEST, following)

    def around(self, line: Line, before: int, after: int) -> list[Line]:
        """Return the record of a line, with those before and after it in its host and file.

        `before` and `after` count records, where a line alone is one. Only the place, host and file
        of `line` are used. If it is newer than the table, only lines before it are found. Raises as
        `find`.
        """
        files = [one for one in self._version.files if one.may_have_host((line.host,))]
        with self._searching(files):
            earlier = self._find_side(files, line, before, Order.NEWEST)
            return earlier[::-1] + self._find_side(files, line, after + 1, Order.OLDEST)

    def get(self, stream: str, sequence: int, pos: int) -> Line | None:
        """Return the line with a key, None if it is not in the table. Raises as `find`."""
        sql = f"SELECT {COLUMNS} FROM lines WHERE stream = ? AND sequence = ? AND pos = ?"
        low_high = ((one, *one.sequences) for one in self._version.files)
        files = [one for one, low, high in low_high if low <= sequence <= high]
        with self._searching(files):
            found = self._ask(sql, [stream, sequence, pos], files)
            return next(map(Line._make, found), None)

    def _find_side(
        self, files: Sequence[TableFile], line: Line, most: int, order: Order
    ) -> list[Line]:
        """Return the records before a line, the newest first, or its record and those after it."""
        time, *key = line.order[:-1]  # of its record
        if order is Order.NEWEST:
            files, sides = [one for one in files if one.begins <= time], ("<=", "<")
        else:
            files, sides = [one for one in files if one.ends >= time], (">=", ">=")
        scope = "host = ? AND coalesce(file, '') = ?", [line.host, as_text(line.file)]
        sql = (
            f"SELECT {COLUMNS} FROM lines WHERE {scope[0]} AND time {sides[0]} ? "
            f"AND (epoch_us(time), stream, sequence, head) {sides[1]} (?, ?, ?, ?) "
            f"{order_by(order)}"
        )
        values = [*scope[1], to_datetime(line.time), time, *key]
        found: list[Line] = []
        for some in pack(sort_files(files, order)):
            if is_complete(found, most, some, order):
                break
            self._show_whole(some, scope)
            found = cut_records([*found, *self._fetch_records(sql, values, most)], most, order)
        return found

    def _fetch_records(self, sql: str, values: Sequence[Any], most: int) -> list[Line]:
        """Return the first `most` records of a query, and maybe others or parts of them."""
        limit = most + 1  # lines; a record is whole for certain if another one follows
        while True:
            found = [*map(Line._make, self._fetch(f"{sql} LIMIT {limit}", values))]
            if len(found) < limit or len([*by_record(found)]) > most:
                return found
            limit *= 4

    def _search(
        self, files: Sequence[TableFile], query: Query, limit: str, order: Order
    ) -> Iterator[Line]:
        """Yield the lines of some files in order, records whole."""
        found = self._select(COLUMNS, files, query, order_by(order), limit)
        yield from map(Line._make, found)

    def _select(
        self, columns: str, files: Sequence[TableFile], query: Query, by: str, limit: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Yield columns of the lines of some files that are wanted: of whole records."""
        self._show_whole(files, make_condition(replace(query, match="", level="")))
        condition, values = make_condition(query)
        sql = f"SELECT {columns} FROM lines WHERE {condition} {by} {limit}"
        if (query.match or query.level or limit) and any(self._fetch(_HAS_RECORDS)):
            firsts = ", ".join(f"min(lines.{name}) AS {name}" for name in ("time", "head", "pos"))
            first_ones = f"{by} {limit}" if limit else ""
            sql = (
                f"WITH hits AS (SELECT {_RECORD}, {firsts} "
                f"FROM lines WHERE {condition} GROUP BY {_RECORD} {first_ones}) "
                f"SELECT {columns} FROM lines WHERE EXISTS (FROM hits WHERE "
                "hits.stream = lines.stream AND hits.sequence = lines.sequence AND "
                "hits.file IS NOT DISTINCT FROM lines.file AND "
                f"hits.record IS NOT DISTINCT FROM lines.record) {by}"
            )
        yield from self._fetch(sql, values)

    def _choose(self, query: Query) -> list[TableFile]:
        since, until = query.since or 0, 2**63 if query.until is None else query.until
        return [
            one
            for one in self._version.files
            if one.ends >= since // 1000
            and one.begins < until // 1000
            and one.may_have_host(query.selection.hosts)
        ]

    def _ask(
        self, sql: str, values: Sequence[Any], files: Sequence[TableFile]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, for which `lines` are those of some files."""
        if files:
            self._call(self._version.show, self._duckdb, "own", files)
            show_rows(self._execute)
            yield from self._fetch(sql, values)

    def _show_whole(self, files: Sequence[TableFile], scope: tuple[str, list[Any]]) -> None:
        """Have `lines` be those of some files within a condition, each line and record whole."""
        begins, ends = min(one.begins for one in files), max(one.ends for one in files)
        low, high = min(one.hosts[0] for one in files), max(one.hosts[1] for one in files)
        nearby = [
            one
            for one in self._version.files
            if one.ends >= begins - NEARBY
            and one.begins <= ends + NEARBY
            and one.hosts[0] <= high
            and one.hosts[1] >= low
        ]
        self._call(self._version.show, self._duckdb, "own", files)
        if unknown := [one for one in nearby if one.path not in self._whole]:
            self._call(self._version.show, self._duckdb, "nearby", unknown)
            if any(self._fetch(IS_CUT)):
                self._call(self._version.show, self._duckdb, "nearby", nearby)
                show_whole(self._execute, *scope)
                return
            self._whole.update(one.path for one in unknown)
        show_rows(self._execute)

    def _execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._call(self._duckdb.execute, sql, values)

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        answer = self._execute(sql, values)
        while rows := self._call(answer.fetchmany, _FETCHED):
            self._raise_end()
            yield from rows

    def _call(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Call DuckDB, whose connection cannot be closed meanwhile."""
        with self._in_call:
            self._raise_end()
            return work(*arguments)

    @contextmanager
    def _searching(self, files: Iterable[TableFile]) -> Iterator[None]:
        """Bound a search in time, and explain its errors."""
        import duckdb

        self._raise_end()
        self.progress = SearchProgress(0, sum(one.size for one in files))
        timer = self._start_timer()
        memory = format_size(self._limits.memory)
        try:
            yield
        except duckdb.InterruptException:
            self._raise_end()
            raise
        except duckdb.OutOfMemoryException:
            raise OperatorError(f"the search takes over {memory} of memory: ask for less") from None
        except duckdb.InvalidInputException as error:
            raise OperatorError(f"the table cannot be searched: {error}") from None
        except (duckdb.IOException, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise OperatorError(
                f"the table's files cannot be read, search again: {reason}"
            ) from None
        finally:
            timer.cancel()

    def _start_timer(self) -> Timer:
        """Start a timer that ends the search when it takes too long."""
        seconds = self._limits.seconds
        timer = Timer(seconds or 0, self._end_late)
        timer.daemon = True
        if seconds is not None:
            timer.start()
        return timer

    def _end_late(self) -> None:
        until = self.progress.until
        rest = "ask for less time or fewer hosts"
        if until is not None:
            rest = f"it ended at {format_time(until)}; to go on, search from there"
        self._end(OperatorError(f"the search took over {self._limits.seconds:g} s: {rest}"))

    def _end(self, error: Exception) -> None:
        self._ended_by = self._ended_by or error
        self._duckdb.interrupt()

    def _raise_end(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    def _note(
        self,
        files: Sequence[TableFile],
        order: Order,
        following: Sequence[TableFile] | None = None,
    ) -> None:
        self._raise_end()
        is_newest = order is Order.NEWEST
        until = min(one.begins for one in files) if is_newest else max(one.ends for one in files)
        if following:
            until = following[0].ends + 1 if is_newest else following[0].begins
        read = self.progress.bytes + sum(one.size for one in files)
        self.progress = self.progress._replace(bytes=read, until=until * 1000)
