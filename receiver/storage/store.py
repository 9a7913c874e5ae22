"""The store of a partition, `<state>/p<N>.db`: one SQLite database that says what of the files is committed.

A batch of the store is in three states. Its files are announced: rows of files that are new, and of segments that are
to be closed, carry its number, which is one above the number in the table `batch`. It is stored: one transaction has
moved that number, the lengths and the spans. It is committed: the offset in KV has moved, which this module never sees.
Each row keeps its value from before the batch, so that a stored batch can still be undone.
"""

import errno
import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.files import open_folder
from receiver.storage import text
from receiver.storage.disk import check_alive, is_local

UNKNOWN = "?"
"""Whose line is unfinished where nobody knows: the file is closed before anything is appended."""

_VERSION = 1
_PATIENCE = 20.0  # seconds for somebody else who reads or writes the store
_LEAST_SPACE = 64 * 1024  # bytes
_ADOPT = "adopt --partition {}"
_MOST_REASONS = 3  # reasons of partitions that one command mends
_MEMORY = Path(":memory:")

_SCHEMA = """
CREATE TABLE batch (
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL, epoch INTEGER NOT NULL, first INTEGER NOT NULL, until INTEGER NOT NULL,
  commit_id TEXT NOT NULL, previous_id TEXT NOT NULL, stream TEXT NOT NULL, created TEXT NOT NULL,
  store_inode INTEGER NOT NULL, output_inode INTEGER NOT NULL, template TEXT NOT NULL,
  bytes INTEGER NOT NULL
);
CREATE TABLE files (
  path TEXT PRIMARY KEY, host TEXT NOT NULL, source TEXT NOT NULL, day TEXT NOT NULL,
  length INTEGER NOT NULL, length_before INTEGER NOT NULL, inode INTEGER NOT NULL, number INTEGER NOT NULL,
  last_line INTEGER NOT NULL, last_line_before INTEGER NOT NULL,
  unfinished TEXT, unfinished_before TEXT, batch INTEGER NOT NULL,
  left_in INTEGER NOT NULL
);
CREATE INDEX files_of_host ON files (host, source, day);
CREATE TRIGGER file_made AFTER INSERT ON files BEGIN
  UPDATE batch SET bytes = bytes + new.length; END;
CREATE TRIGGER file_changed AFTER UPDATE OF length ON files BEGIN
  UPDATE batch SET bytes = bytes + new.length - old.length; END;
CREATE TRIGGER file_forgotten AFTER DELETE ON files BEGIN
  UPDATE batch SET bytes = bytes - old.length; END;
CREATE TABLE spans (
  host TEXT NOT NULL, file TEXT NOT NULL, until INTEGER NOT NULL, until_before INTEGER,
  read_at INTEGER NOT NULL, read_at_before INTEGER, batch INTEGER NOT NULL, PRIMARY KEY (host, file)
) WITHOUT ROWID;
CREATE TABLE gaps (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, file TEXT NOT NULL, file_id TEXT NOT NULL,
  start INTEGER NOT NULL, until INTEGER NOT NULL, sequence INTEGER NOT NULL,
  after INTEGER NOT NULL, since TEXT, read_at TEXT, batch INTEGER NOT NULL
);
CREATE TABLE segments (
  path TEXT PRIMARY KEY, live TEXT NOT NULL, number INTEGER NOT NULL, day TEXT NOT NULL,
  size INTEGER NOT NULL, last_line INTEGER NOT NULL,
  compressed TEXT NOT NULL, batch INTEGER NOT NULL, length INTEGER
);
CREATE INDEX segments_of_file ON segments (live);
"""

_ERRORS = {
    sqlite3.SQLITE_BUSY: errno.EBUSY,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR: errno.EIO,
    sqlite3.SQLITE_LOCKED: errno.EBUSY,
    sqlite3.SQLITE_NOMEM: errno.ENOMEM,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_PROTOCOL: errno.EBUSY,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}

NOT_TAKEN = (
    *(sqlite3.DataError, sqlite3.IntegrityError),
    *(sqlite3.InterfaceError, sqlite3.ProgrammingError),
)
"""What SQLite raises for a row that it does not take: the row is wrong, and not the store."""


class Damaged(ConfigurationError):
    """Store, files, offset and stream of a partition do not go together: going on could lose or repeat lines; a person has to decide.

    `command` of `logreceiver offsets` mends it, for any number of partitions (`{}`); `effect` is what that does.
    """

    def __init__(
        self,
        partition: int,
        reason: str,
        command: str = _ADOPT,
        effect: str = "takes the files as they are",
    ) -> None:
        """Say which partition, and why."""
        self.partition, self.reason, self.command, self.effect = partition, reason, command, effect
        super().__init__(message_for([self]))

    def at(self, output: Path, state: Path) -> "Damaged":
        """Return the error with a command that says which files to adopt."""
        if self.command != _ADOPT:
            return self
        # a brace would be a field of the command
        folders = (
            shlex.quote(str(one)).replace("{", "{{").replace("}", "}}") for one in (output, state)
        )
        command = "{} --output {} --state-dir {}".format(_ADOPT, *folders)
        return type(self)(self.partition, self.reason, command, self.effect)


class Misplaced(Damaged):
    """Store or files are not where they should be: perhaps a disk is not mounted."""


def message_for(errors: Iterable[Damaged]) -> str:
    """Return one line about all of these errors, with each command that is needed once."""
    by_command: dict[str, list[Damaged]] = {}
    for error in errors:
        by_command.setdefault(error.command, []).append(error)
    words = []
    for command, alike in by_command.items():
        words += [f"partition {one.partition}: {one.reason}" for one in alike[:_MOST_REASONS]]
        numbers = ",".join(str(one.partition) for one in alike)
        words += [f"the same goes for others of {numbers}"] if alike[_MOST_REASONS:] else []
        named = f"`logreceiver offsets {command.format(numbers)}` {alike[0].effect}"
        words += [named] if command else []
    return "; ".join(words)


class StoredBatch(NamedTuple):
    """The batch that was stored last: messages `[first, until)` of a stream, which was made at `created`.

    It is committed when the offset in KV has its `commit_id`, and is to be taken back while that has `previous_id`.
    `store_inode` and `output_inode` are those of the store and of the output folder then: a copy
    has others. `template` is the path template of all files, empty where that is not known.
    """

    number: int
    epoch: int
    first: int
    until: int
    commit_id: str = ""
    previous_id: str = ""
    stream: str = ""
    created: str = ""
    store_inode: int = 0
    output_inode: int = 0
    template: str = ""


class FileRow(NamedTuple):
    """A live file: how long it is, and how long it was before `batch`.

    Its `host` is empty where it is the report of gaps. `inode` tells it from another file at its path; 0 where it is to
    be made. `number` is that of its next segment. `last_line` is when its last line was stored, in nanoseconds since the
    epoch; `unfinished` is the open line at its end (`OpenLine.as_text`), None where no line is open.
    The batch `left_in` has left it to another partition; 0 for none.
    """

    path: str
    host: str
    source: str
    day: str
    length: int = 0
    length_before: int = 0
    inode: int = 0
    number: int = 1
    last_line: int = 0
    last_line_before: int = 0
    unfinished: str | None = None
    unfinished_before: str | None = None
    batch: int = 0
    left_in: int = 0


class SegmentRow(NamedTuple):
    """A closed segment by its path, with that of its live file. `size` is in bytes, as they are on disk.

    `compressed` is the suffix of its compressed form, empty for none. It has `length` bytes of lines, None where not counted.
    """

    path: str
    live: str
    number: int
    day: str
    size: int
    last_line: int
    compressed: str
    batch: int
    length: int | None = None


NOT_CLOSED = "path NOT IN (SELECT path FROM segments)"
"""The condition of live files that are not about to be closed under their own name."""
IS_STORED = "batch <= (SELECT number FROM batch)"
"""The condition of segments of stored batches: they have their names, no undo needs them."""

_FILE, _SEGMENT = ", ".join(FileRow._fields), ", ".join(SegmentRow._fields)
_BATCH = ", ".join(StoredBatch._fields)


def _values(columns: Iterable[str]) -> str:
    return f"VALUES ({', '.join('?' for _ in columns)})"


_PUT_BATCH = (
    f"INSERT INTO batch (id, bytes, {_BATCH}) VALUES (1, 0, {', '.join('?' for _ in StoredBatch._fields)}) ON CONFLICT DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in StoredBatch._fields)
)
_PUT_FILE = f"INSERT INTO files {_values(FileRow._fields)} ON CONFLICT DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in FileRow._fields[4:]
)
_NEWEST = """
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
_TAKE_SPAN = (
    "INSERT INTO spans VALUES (?, ?, ?, NULL, ?, NULL, 0) ON CONFLICT DO UPDATE SET "
    "until = max(until, excluded.until), read_at = max(read_at, excluded.read_at)"
)
_OLD_SPAN = "file != '' AND read_at BETWEEN 1 AND min(?, (SELECT max(read_at) FROM spans)) - ?"
_FORGET_DAYS = (
    "DELETE FROM files WHERE path = ? AND day != '' AND day < (SELECT max(day) FROM files)"
)
_ONE_FILE = f"SELECT {_FILE} FROM files WHERE path = ? AND left_in = 0"


def path_of(state: Path, partition: int) -> Path:
    """Return where the store of a partition is."""
    return state / f"p{partition}.db"


class Store:
    """An open store. Whoever writes files by it holds the partition's lock; others may read, and retention may write."""

    def __init__(self, path: Path, *, make: bool = False) -> None:
        """Open it, and make it where that is wanted; raises OSError, `Damaged`."""
        self.path = path
        with open_folder(path.parent) as folder:
            is_there = folder.find(path.name) is not None
        if not is_there and not make:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with self._translated():
            self._open(_uri_of(path))
        try:
            with self._translated():
                self._prepare(make=make)
        except BaseException:
            self.close()
            raise

    def _open(self, uri: str) -> None:
        self._sql = sqlite3.connect(
            uri, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )

        self._sql.text_factory = text.decode

    def _prepare(self, *, make: bool) -> None:
        version = int(self._sql.execute("PRAGMA user_version").fetchone()[0])
        if version == 0 and not make:
            raise FileNotFoundError(errno.ENOENT, "holds nothing", str(self.path))
        if version not in {0, _VERSION}:
            words = f"{self.path} is of version {version}; this program reads {_VERSION}"
            raise Damaged(self._number, words, command="")
        mode = "WAL" if is_local(self.path.parent) else "TRUNCATE"
        self._sql.execute(f"PRAGMA journal_mode={mode}")
        self._sql.execute("PRAGMA synchronous=FULL")
        if version == 0:
            self._make_tables()
            with open_folder(self.path.parent) as folder:
                folder.sync()

    def _make_tables(self) -> None:
        with self.transaction():
            for statement in _SCHEMA.split(";\n"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version={_VERSION}")

    @classmethod
    def in_memory(cls) -> "Store":
        """Return a store that is nowhere on disk, for files that nobody else writes to."""
        store = cls.__new__(cls)
        store.path = _MEMORY
        store._open("file::memory:")
        store._make_tables()
        return store

    def check(self) -> None:
        """Hold all of it against its indexes and itself, at some 7 MB/s; raises OSError, `Damaged`."""
        self._ask("integrity_check")
        self.check_lengths()

    def check_pages(self) -> None:
        """Read all of it, at some 100 MB/s: a last page that is cut off SQLite does not notice by itself; raises OSError, `Damaged`."""
        self._ask("quick_check")

    def _ask(self, check: str) -> None:
        ((found, *_), *_) = self.rows(f"PRAGMA {check}(1)")
        if found != "ok":
            raise self._damaged(" ".join(str(found).split()))

    def check_lengths(self) -> None:
        """Raise `Damaged` where the lengths are of another time than the batch: an older store met a newer log of writes."""
        query = "SELECT 1 FROM batch WHERE bytes != (SELECT coalesce(sum(length), 0) FROM files)"
        if self.rows(query):
            raise self._damaged(f"it is older than the {self.path.name}-wal beside it")

    def _damaged(self, why: object) -> Damaged:
        return Damaged(
            self._number, f"{self.path} is damaged: {why}; bring it back, unless it is lost"
        )

    @property
    def _number(self) -> int:
        return int(self.path.stem.removeprefix("p"))

    def close(self) -> None:
        """Let go of it."""
        with suppress(sqlite3.Error):
            self._sql.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of SQLite as OSErrors that name the store, or as `Damaged`.

        Those of a row (`NOT_TAKEN`) stay as they are.
        """
        try:
            yield
        except NOT_TAKEN:
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in _ERRORS:
                raise self._damaged(error) from None
            number = _ERRORS[code]
            if number == errno.EIO and _is_full(self.path.parent):
                number = errno.ENOSPC  # of the file that its readers share SQLite does not tell
            raise OSError(number, os.strerror(number), str(self.path)) from None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do what is inside whole or not at all; on disk when this returns. Raises OSError, `Damaged`."""
        with self._translated():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._sql.execute("ROLLBACK")
                raise
        if self.path != _MEMORY:
            check_alive(self.path)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Read what is inside as of one moment, while others write; raises OSError, `Damaged`."""
        with self._translated():
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("ROLLBACK")

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query; raises OSError, `Damaged`."""
        with self._translated():
            return self._sql.execute(sql, _bound(values)).fetchall()

    def change(self, sql: str, *values: object) -> None:
        """Change rows within a transaction."""
        self._sql.execute(sql, _bound(values))

    def change_all(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Change rows for the values of each of some rows, within a transaction."""
        self._sql.executemany(sql, map(_bound, rows))

    def batch(self) -> StoredBatch | None:
        """Return the batch that was stored last; None for a store that was never begun."""
        found = self.rows(f"SELECT {_BATCH} FROM batch")
        return StoredBatch(*found[0]) if found else None  # type: ignore[arg-type] # by the schema

    def put_batch(self, batch: StoredBatch) -> None:
        """Replace the row of the batch, within a transaction."""
        self.change(_PUT_BATCH, *batch)

    def template(self) -> str:
        """Return the path template that files were written by; empty while there are none."""
        query = "SELECT template FROM batch WHERE EXISTS (SELECT 1 FROM files WHERE host != '')"
        found = self.rows(f"{query} OR EXISTS (SELECT 1 FROM segments)")
        return str(found[0][0]) if found else ""

    def inode(self) -> int:
        """Return the inode of the store itself."""
        return self.path.stat().st_ino

    def file(self, path: str) -> FileRow | None:
        """Return a live file by its path; None for one that is not known."""
        found = self.rows(_ONE_FILE, path)
        return FileRow(*found[0]) if found else None  # type: ignore[arg-type] # by the schema

    def files(self, where: str, *values: object) -> list[FileRow]:
        """Return the live files for which a condition holds, but for those that were left."""
        return self.all_files(f"left_in = 0 AND {where}", *values)

    def all_files(self, where: str, *values: object) -> list[FileRow]:
        """Return the live files for which a condition holds, with those that were left to other partitions."""
        found = self.rows(f"SELECT {_FILE} FROM files WHERE {where}", *values)
        return [FileRow(*row) for row in found]  # type: ignore[arg-type] # by the schema

    def put_files(self, files: Iterable[FileRow]) -> None:
        """Write rows of live files, within a transaction."""
        self.change_all(_PUT_FILE, files)

    def segments(self, where: str, *values: object) -> list[SegmentRow]:
        """Return the closed segments for which a condition holds, those of a live file by number."""
        found = self.rows(
            f"SELECT {_SEGMENT} FROM segments WHERE {where} ORDER BY live, day, number", *values
        )
        return [SegmentRow(*row) for row in found]  # type: ignore[arg-type] # by the schema

    def last_day(self) -> str:
        """Return the last day of all live files; empty for none."""
        return str(self.rows("SELECT coalesce(max(day), '') FROM files")[0][0])

    def newest_line(self) -> int:
        """Return when the newest line was stored, in nanoseconds since the epoch; 0 for none."""
        return int(str(self.rows(_NEWEST)[0][0]))

    def leave_files(self, paths: Iterable[str], batch: int) -> None:
        """Note that a batch leaves live files to other partitions, within a transaction."""
        leaving = ((batch, path) for path in paths)
        self.change_all("UPDATE files SET left_in = ? WHERE path = ?", leaving)

    def return_files(self, host: str) -> None:
        """Have the live files of a host back that were left, within a transaction."""
        self.change("UPDATE files SET left_in = 0 WHERE host = ?", host)

    def return_files_since(self, batch: int) -> None:
        """Have the live files back that were left from a batch on; on disk when this returns."""
        if self.rows("SELECT 1 FROM files WHERE left_in >= ? LIMIT 1", batch):
            with self.transaction():
                self.change("UPDATE files SET left_in = 0 WHERE left_in >= ?", batch)

    def forget_files(self, paths: Iterable[str]) -> None:
        """Forget live files, within a transaction; their segments stay."""
        self.change_all("DELETE FROM files WHERE path = ?", ((path,) for path in paths))

    def forget_segments_of(self, lives: Iterable[str]) -> None:
        """Forget the segments of live files, within a transaction."""
        self.change_all("DELETE FROM segments WHERE live = ?", ((live,) for live in lives))

    def sizes(self) -> list[tuple[object, ...]]:
        """Return the live files of hosts: path, last line (text), bytes, number of segments.

        The bytes are those of the file and of its segments.
        """
        return self.rows(_SIZES)

    def has_spans(self) -> bool:
        """Whether anything is known of how far source files were received."""
        return bool(self.rows("SELECT 1 FROM spans LIMIT 1"))

    def spans(self, host: str) -> list[tuple[object, ...]]:
        """Return host, file, end and time of reading of each source file of a host."""
        query = "SELECT host, file, until, read_at FROM spans WHERE host = ? AND file != ''"
        return self.rows(query, host)

    def put_spans(self, rows: Iterable[Sequence[object]], batch: int) -> None:
        """Write rows as `spans` returns them, of a batch, within its transaction."""
        self.change_all(_PUT_SPAN, ((*row, batch) for row in rows))

    def take_spans(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows as `spans` of another store returned them, within a transaction.

        The later end and time count. The rows are never undone.
        """
        self.change_all(_TAKE_SPAN, rows)

    def forget_old_spans(self, now: int, age: int) -> None:
        """Forget source files that were read `age` nanoseconds before the last one, or before `now`.

        The earlier of both counts. On disk when this returns.
        """
        if self.rows(f"SELECT 1 FROM spans WHERE {_OLD_SPAN} LIMIT 1", now, age):
            with self.transaction():
                self.change(f"DELETE FROM spans WHERE {_OLD_SPAN}", now, age)

    def put_gaps(self, rows: Iterable[Sequence[object]]) -> None:
        """Write rows of gaps, without their ids, within a transaction."""
        self.change_all(f"INSERT INTO gaps VALUES (NULL, {', '.join('?' * 11)})", rows)

    def forget_spans(self, host: str) -> None:
        """Forget how far the source files of a host were received, within a transaction."""
        self.change("DELETE FROM spans WHERE host = ? AND file != ''", host)

    def undo(self, since: int, stored: int) -> None:
        """Take back gaps, spans and closed segments, within a transaction.

        Gaps and spans are those of the batches from `since` on, segments those of the batches
        behind `stored`.
        """
        self.change("UPDATE segments SET batch = 0 WHERE batch > ?", stored)
        self.change("DELETE FROM gaps WHERE batch >= ?", since)
        self.change("DELETE FROM spans WHERE batch >= ? AND until_before IS NULL", since)
        self.change(_UNDO_SPANS, since)

    def forget_batches(self) -> None:
        """Have nothing to undo, and no segments and lengths, within a transaction.

        Files that were left to other partitions stay as they are, with their segments.
        """
        self.change(
            "DELETE FROM segments WHERE live NOT IN (SELECT path FROM files WHERE left_in > 0)"
        )
        self.change(
            "UPDATE files SET length = 0, length_before = 0, inode = 0, batch = 0 WHERE left_in = 0"
        )
        self.change("UPDATE spans SET until_before = NULL, batch = 0")

    def note_compressed(self, path: str, suffix: str, size: int) -> None:
        """Note the compressed form of a segment, of `size` bytes; on disk when this returns."""
        with self.transaction():
            query = "UPDATE segments SET compressed = ?, size = ? WHERE path = ?"
            self.change(query, suffix, size, path)

    def forget_segments(self, paths: Sequence[str]) -> None:
        """Forget closed segments, and the files of days that are over; on disk when this returns."""
        with self.transaction():
            self.change_all("DELETE FROM segments WHERE path = ?", ((path,) for path in paths))
            self.change_all(_FORGET_DAYS, ((path,) for path in paths))

    def put_segments(self, segments: Iterable[SegmentRow]) -> None:
        """Write rows of closed segments, within a transaction."""
        put = f"INSERT OR REPLACE INTO segments {_values(SegmentRow._fields)}"
        self.change_all(put, segments)

    def span(self, host: str, file: str) -> tuple[int, int] | None:
        """Return how far a source file was received, and when that was read; None for one that is not known."""
        query = "SELECT until, read_at FROM spans WHERE host = ? AND file = ?"
        found = self.rows(query, host, file)
        return found[0] if found else None  # type: ignore[return-value] # by the schema


def _bound(values: Iterable[object]) -> list[object]:
    """Return values as SQLite takes them."""
    return [text.encode(value) if isinstance(value, str) else value for value in values]


def _uri_of(path: Path) -> str:
    """Return how SQLite opens a database; one that nobody has open, in a folder that is not ours to write, as it stands there."""
    is_closed = is_local(path.parent) and not os.path.lexists(f"{path}-wal")
    is_ours = os.access(path.parent, os.W_OK, effective_ids=True)
    mode = "immutable=1" if is_closed and not is_ours else "mode=rwc"
    return f"{path.absolute().as_uri()}?{mode}"


def _is_full(folder: Path) -> bool:
    with suppress(OSError):
        space = os.statvfs(folder)
        return space.f_bavail * space.f_frsize < _LEAST_SPACE
    return False
