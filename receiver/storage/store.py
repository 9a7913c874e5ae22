"""The store of a partition: what is stored of its files, by the queries that the receiver needs.

The last stored batch may not be committed yet. `receiver/consume/batch.py` has the order of the
steps of a batch, `recovery.py` the undo.
Methods that end with "within a transaction" take effect when `transaction()` ends; the others that
write are on disk when they return. Methods that read raise OSError and `Damaged`.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from receiver.storage.database import Database
from receiver.storage.rows import FileRow, SegmentRow, StoredBatch

_MOST_REMEMBERED = 2_000  # rows of live files; one has some 600 bytes
_FILE, _SEGMENT = ", ".join(FileRow._fields), ", ".join(SegmentRow._fields)
_BATCH = ", ".join(StoredBatch._fields)
_IS_LIVE = "path NOT IN (SELECT path FROM segments)"  # a file of a day that is over is a segment
# the column `batch` is a batch's number, the table `batch` has one row: the last stored batch;
# a row with a higher number is of a batch that is only announced
_IS_STORED = "batch <= (SELECT number FROM batch)"
# a day that is only announced has no line: an undo may lead back to the day before
_LATEST_DAY = "(SELECT coalesce(max(day), '') FROM files WHERE last_line > 0)"
# a clock that is ahead of the broker's closes the file of the latest day, which gets more lines
_IS_COMPLETE = f"{_IS_STORED} AND (path != live OR day < {_LATEST_DAY})"


def _placeholders(columns: Sequence[str]) -> str:
    return ", ".join("?" * len(columns))


def _assignments(columns: Iterable[str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns)


_PUT_BATCH = (
    f"INSERT INTO batch (id, bytes, {_BATCH}) VALUES (1, 0, {_placeholders(StoredBatch._fields)}) "
    f"ON CONFLICT DO UPDATE SET {_assignments(StoredBatch._fields)}"
)
_PUT_FILE = (
    f"INSERT INTO files VALUES ({_placeholders(FileRow._fields)}) "
    f"ON CONFLICT DO UPDATE SET {_assignments(FileRow._fields[4:])}"
)
_PUT_SEGMENT = f"INSERT OR REPLACE INTO segments VALUES ({_placeholders(SegmentRow._fields)})"
_NEWEST_LINE = """
SELECT coalesce(max(last_line), 0)
FROM (SELECT last_line FROM files UNION ALL SELECT last_line FROM segments)
"""
_SIZES = """
SELECT path,
  CASE WHEN last_line
    THEN strftime('%Y-%m-%dT%H:%M:%SZ', last_line / 1000000000, 'unixepoch') ELSE ''
  END,
  length + coalesce(closed, 0), coalesce(count, 0)
FROM files LEFT JOIN (
  SELECT live, sum(size) AS closed, count(*) AS count FROM segments WHERE path != live GROUP BY live
) ON live = path WHERE length NOT NULL AND host != ''
"""
_UNDO_SPANS = (
    "UPDATE spans SET until = until_before, read_at = read_at_before, batch = 0 WHERE batch >= ?"
)
_PUT_SPAN = (
    "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, ?) ON CONFLICT DO UPDATE SET "
    "until_before = until, until = excluded.until, read_at_before = read_at, "
    "read_at = excluded.read_at, batch = excluded.batch"
)
_MERGE_SPAN = (
    "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, 0) ON CONFLICT DO UPDATE SET "
    "until = max(until, excluded.until), read_at = max(read_at, excluded.read_at)"
)
_OLD_SPAN = "file != '' AND read_at BETWEEN 1 AND min(?, (SELECT max(read_at) FROM spans)) - ?"
_REOPEN_DAY = "DELETE FROM segments WHERE path = ? AND compressed = ''"
_FORGET_DAY = (
    "DELETE FROM files WHERE path = ? AND day != '' AND day < (SELECT max(day) FROM files)"
)


def make_store_path(state: Path, partition: int) -> Path:
    """Return the path of a partition's store."""
    return state / f"p{partition}.db"


class Store(Database):
    """An open store.

    Files that were left to another partition are in `list_left_files`, and until that partition
    takes them also in `list_sizes`, `read_newest_line` and `read_last_day`; nowhere else.

    The task that writes the files lets rows of live files and of the batch be remembered, also from
    one batch to the next, by `refresh`.
    """

    def _connect(self, path: Path, uri: str) -> None:
        super()._connect(path, uri)
        self._version: int | None = None
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._found = dict[str, FileRow | None]()  # by path
        self._batch: StoredBatch | None = None

    def refresh(self) -> None:
        """Remember rows from now on; forget them if another connection has changed the database.

        To be called between batches, under the partition's lock.
        """
        ((version, *_), *_) = self.rows("PRAGMA data_version")
        if version != self._version:
            self._version = int(str(version))
            self._forget_rows()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one transaction, on disk at the end. Raises OSError, `Damaged`."""
        try:
            with super().transaction():
                yield
        except BaseException:
            self._forget_rows()
            raise

    # the batch

    def read_batch(self) -> StoredBatch | None:
        """Return the batch that was stored last; None for a new store."""
        if self._batch is None or self._version is None:
            found = self.rows(f"SELECT {_BATCH} FROM batch")
            # the schema has these types
            self._batch = StoredBatch(*found[0]) if found else None  # type: ignore[arg-type]
        return self._batch

    def put_batch(self, batch: StoredBatch) -> None:
        """Replace the row of the batch, within a transaction."""
        self.change(_PUT_BATCH, *batch)
        self._batch = batch

    def undo(self, first_to_undo: int) -> None:
        """Undo gaps and spans of the batches from a number on, within a transaction.

        Segments that are only announced become ordinary ones, whatever the number is: `recover` has
        renamed their files.
        """
        self.change("UPDATE segments SET batch = 0 WHERE batch > (SELECT number FROM batch)")
        self.change("DELETE FROM gaps WHERE batch >= ?", first_to_undo)
        # the batch was the first with lines of this source file
        self.change("DELETE FROM spans WHERE batch >= ? AND until_before IS NULL", first_to_undo)
        self.change(_UNDO_SPANS, first_to_undo)  # all others get their values from before the batch

    def forget_batches(self) -> None:
        """Forget what an undo would need, all segments and all lengths, within a transaction.

        Files that were left to other partitions keep their rows and segments.
        """
        self.change(
            "DELETE FROM segments WHERE live NOT IN (SELECT path FROM files WHERE left_in > 0)"
        )
        self.change(
            "UPDATE files SET length = 0, length_before = 0, inode = 0, batch = 0 WHERE left_in = 0"
        )
        self.change("UPDATE spans SET until_before = NULL, batch = 0")
        self._forget_rows()

    def read_template(self) -> str:
        """Return the path template that the files were written with; empty if there are none."""
        query = "SELECT template FROM batch WHERE EXISTS (SELECT 1 FROM files WHERE host != '')"
        found = self.rows(f"{query} OR EXISTS (SELECT 1 FROM segments)")
        return str(found[0][0]) if found else ""

    # live files

    def find_file(self, path: str) -> FileRow | None:
        """Return a live file by its path; None if it is not known."""
        if path not in self._found or self._version is None:
            if len(self._found) >= _MOST_REMEMBERED:
                self._found.clear()
            self._found[path] = next(iter(self._files("path = ?", path)), None)
        return self._found[path]

    def has_files_below(self, folder: str) -> bool:
        """Whether a live file is below a folder."""
        return bool(self._files("path > ? AND path < ? LIMIT 1", f"{folder}/", f"{folder}0"))

    def list_files(self) -> list[FileRow]:
        """Return all files, also those of days that are over."""
        return self._files("TRUE")

    def list_files_to_recover(self, first_to_undo: int) -> list[FileRow]:
        """Return the files that may get lines, and those changed by batches from a number on.

        A file of the latest day may get lines although it is closed: a rotation closes it by the
        clock of its machine, and lines come by the broker's.
        """
        is_latest = f"day >= {_LATEST_DAY}"
        return self._files(f"({_IS_LIVE} OR {is_latest} OR batch >= ?)", first_to_undo)

    def list_files_with_lines(self) -> list[FileRow]:
        """Return the live files that are not empty."""
        return self._files("length > 0")

    def list_files_of(self, host: str) -> list[FileRow]:
        """Return the live files of a host."""
        return self._files("host = ?", host)

    def list_files_of_source(self, host: str, source: str, day: str) -> list[FileRow]:
        """Return the live files for lines of one source file of a host, on one day."""
        return self._files("host = ? AND source = ? AND day = ?", host, source, day)

    def list_files_of_days_before(self, day: str) -> list[FileRow]:
        """Return the live files of earlier days that are not closed yet."""
        return self._files(f"day != '' AND day < ? AND {_IS_LIVE}", day)

    def list_files_silent_since(self, moment: int) -> list[FileRow]:
        """Return the live files of hosts with lines, all of which are older than a moment."""
        silent = "host != '' AND length > 0 AND last_line < ?"
        return self._files(f"{silent} AND {_IS_LIVE}", moment)

    def list_files_and_left(self) -> list[FileRow]:
        """Return all files, also those that were left to other partitions and not yet taken."""
        return self._all_files("TRUE")

    def list_left_files(self, host: str) -> list[FileRow]:
        """Return the files of a host that were left to another partition."""
        return self._all_files("left_in > 0 AND host = ?", host)

    def _files(self, where: str, *values: object) -> list[FileRow]:
        return self._all_files(f"left_in = 0 AND {where}", *values)

    def _all_files(self, where: str, *values: object) -> list[FileRow]:
        found = self.rows(f"SELECT {_FILE} FROM files WHERE {where}", *values)
        return [FileRow(*row) for row in found]  # type: ignore[arg-type] # by the schema

    def put_files(self, files: Iterable[FileRow]) -> None:
        """Write rows of live files, within a transaction; closed days among them are open again."""
        rows = list(files)
        self.change_all(_PUT_FILE, rows)
        self.change_all(_REOPEN_DAY, ((row.path,) for row in rows if row.day))
        self._found.update((row.path, None if row.left_in else row) for row in rows)

    def leave_files(self, paths: Iterable[str], batch: int) -> None:
        """Note that a batch leaves files to another partition, within a transaction."""
        if leaving := [(batch, path) for path in paths]:
            self.change_all("UPDATE files SET left_in = ? WHERE path = ?", leaving)
            self._forget_rows()

    def return_files(self, host: str) -> None:
        """Take back the files of a host that were left, within a transaction."""
        self.change("UPDATE files SET left_in = 0 WHERE host = ?", host)
        self._forget_rows()

    def return_files_since(self, batch: int) -> None:
        """Take back the files that were left in a batch or after it; on disk at the end."""
        if self.rows("SELECT 1 FROM files WHERE left_in >= ? LIMIT 1", batch):
            with self.transaction():
                self.change("UPDATE files SET left_in = 0 WHERE left_in >= ?", batch)
                self._forget_rows()

    def forget_files(self, paths: Iterable[str]) -> None:
        """Forget live files but not their segments, within a transaction."""
        self.change_all("DELETE FROM files WHERE path = ?", ((path,) for path in paths))
        self._forget_rows()

    def read_last_day(self) -> str:
        """Return the latest day of all files; empty if files have no days."""
        return str(self.rows("SELECT coalesce(max(day), '') FROM files")[0][0])

    def read_newest_line(self) -> int:
        """Return when the broker stored the newest line, in nanoseconds since the epoch, or 0."""
        return int(str(self.rows(_NEWEST_LINE)[0][0]))

    def list_sizes(self) -> list[tuple[object, ...]]:
        """Return path, time of the last line (text), bytes and number of segments of each file.

        The bytes are those of the live file and of its segments.
        """
        return self.rows(_SIZES)

    # closed segments

    def list_segments_of(self, live: str) -> list[SegmentRow]:
        """Return the segments of a live file, also those that are only announced."""
        return self._segments("live = ?", live)

    def list_stored_segments(self) -> list[SegmentRow]:
        """Return the segments of stored batches: they are renamed, and an undo changes none."""
        return self._segments(_IS_STORED)

    def list_complete_segments(self) -> list[SegmentRow]:
        """Return the stored segments that get no more lines: all but files of the latest day."""
        return self._segments(_IS_COMPLETE)

    def list_segments_to_compress(self) -> list[SegmentRow]:
        """Return the complete segments that are not compressed."""
        return self._segments(f"compressed = '' AND {_IS_COMPLETE}")

    def list_segments_to_rename(self) -> list[SegmentRow]:
        """Return the segments that are only announced: their files may not be renamed yet."""
        return self._segments("path != live AND batch > (SELECT number FROM batch)")

    def _segments(self, where: str, *values: object) -> list[SegmentRow]:
        query = f"SELECT {_SEGMENT} FROM segments WHERE {where} ORDER BY live, day, number"
        found = self.rows(query, *values)
        return [SegmentRow(*row) for row in found]  # type: ignore[arg-type] # by the schema

    def put_segments(self, segments: Iterable[SegmentRow]) -> None:
        """Write rows of segments, within a transaction."""
        self.change_all(_PUT_SEGMENT, segments)

    def note_compressed(self, path: str, suffix: str, size: int) -> None:
        """Note suffix and bytes of a segment's compressed form; on disk at the end."""
        with self.transaction():
            query = "UPDATE segments SET compressed = ?, size = ? WHERE path = ?"
            self.change(query, suffix, size, path)

    def forget_segments(self, paths: Sequence[str]) -> None:
        """Forget segments, and live files of earlier days at the same paths; on disk at the end."""
        with self.transaction():
            self.change_all("DELETE FROM segments WHERE path = ?", ((path,) for path in paths))
            self.change_all(_FORGET_DAY, ((path,) for path in paths))
            self._forget_rows()

    def forget_segments_of(self, lives: Iterable[str]) -> None:
        """Forget the segments of live files, within a transaction."""
        self.change_all("DELETE FROM segments WHERE live = ?", ((live,) for live in lives))

    # spans and gaps

    def find_span(self, host: str, file: str) -> tuple[int, int] | None:
        """Return how far a source file was received, and when that was read; None if not known."""
        query = "SELECT until, read_at FROM spans WHERE host = ? AND file = ?"
        found = self.rows(query, host, file)
        return found[0] if found else None  # type: ignore[return-value] # by the schema

    def has_spans(self) -> bool:
        """Whether anything is known of how far source files were received."""
        return bool(self.rows("SELECT 1 FROM spans LIMIT 1"))

    def list_spans(self, host: str) -> list[tuple[object, ...]]:
        """Return host, file, end and time of reading of each source file of a host."""
        query = "SELECT host, file, until, read_at FROM spans WHERE host = ? AND file != ''"
        return self.rows(query, host)

    def put_spans(self, rows: Iterable[Sequence[object]], batch: int) -> None:
        """Write rows as `list_spans` returns them, of a batch, within its transaction."""
        self.change_all(_PUT_SPAN, ((*row, batch) for row in rows))

    def merge_spans(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows that `list_spans` of another store returned, within a transaction.

        The later end and the later time win. No undo changes these rows.
        """
        self.change_all(_MERGE_SPAN, rows)

    def forget_spans(self, host: str) -> None:
        """Forget how far the source files of a host were received, within a transaction."""
        self.change("DELETE FROM spans WHERE host = ? AND file != ''", host)

    def forget_old_spans(self, now: int, age: int) -> None:
        """Forget the source files that were last read `age` nanoseconds ago; on disk at the end.

        Age counts from `now` or from the newest time of reading, whichever is earlier.
        """
        if self.rows(f"SELECT 1 FROM spans WHERE {_OLD_SPAN} LIMIT 1", now, age):
            with self.transaction():
                self.change(f"DELETE FROM spans WHERE {_OLD_SPAN}", now, age)

    def put_gaps(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows of gaps, without their ids, within a transaction."""
        if found := list(rows):
            self.change_all(f"INSERT INTO gaps VALUES (NULL, {', '.join('?' * 12)})", found)
