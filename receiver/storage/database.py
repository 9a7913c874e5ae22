r"""The SQLite database of a partition, `<state>/p<N>.db`: connection, schema, transactions, checks.

`Store` adds the queries. SQL is in these two modules only.

Text is valid UTF-8 without NUL; ordinary names are as they are. A path may hold bytes that are not
UTF-8. Python reads such a byte as a lone surrogate, which SQLite refuses. The store keeps each lone
surrogate, NUL and U+FFFD itself as U+FFFD and four hex digits: the file `\xff.log` is `�dcff.log`
there.
"""

import errno
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from nats_logship.app.files import open_folder
from receiver.storage.damage import Damaged
from receiver.storage.disk import is_local, raise_if_failed
from receiver.storage.rows import inode_of

_MARK = "\ufffd"
_ESCAPED = re.compile(f"[\0{_MARK}\ud800-\udfff]")
_ESCAPE = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def _encode_text(text: str) -> str:
    """Return what the store keeps for a text; different texts are kept differently."""
    if text.isascii() and "\0" not in text:
        return text
    return _ESCAPED.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def _decode_text(kept: bytes) -> str:
    """Return the text that `_encode_text` was given."""
    if kept.isascii():
        return kept.decode("ascii")
    text = kept.decode("utf-8", "surrogateescape")
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


_VERSION = 1
_LOCK_PATIENCE = 20.0  # seconds to wait for another process that reads or writes the database
_LEAST_SPACE = 64 * 1024  # bytes; a file system with less is taken for full
_MEMORY = Path(":memory:")

_SCHEMA = """
CREATE TABLE batch (
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL, epoch INTEGER NOT NULL,
  first INTEGER NOT NULL, until INTEGER NOT NULL,
  commit_id TEXT NOT NULL, previous_id TEXT NOT NULL, stream TEXT NOT NULL, created TEXT NOT NULL,
  store_inode INTEGER NOT NULL, output_inode INTEGER NOT NULL, template TEXT NOT NULL,
  bytes INTEGER NOT NULL
);
CREATE TABLE files (
  path TEXT PRIMARY KEY, host TEXT NOT NULL, source TEXT NOT NULL, day TEXT NOT NULL,
  length INTEGER NOT NULL, length_before INTEGER NOT NULL, inode INTEGER NOT NULL,
  number INTEGER NOT NULL, last_line INTEGER NOT NULL, last_line_before INTEGER NOT NULL,
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
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, file TEXT NOT NULL,
  file_id TEXT NOT NULL, start INTEGER NOT NULL, until INTEGER NOT NULL, sequence INTEGER NOT NULL,
  after INTEGER NOT NULL, since TEXT, read_at TEXT, unit TEXT NOT NULL, batch INTEGER NOT NULL
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

ROW_ERRORS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)
"""Errors of SQLite that mean a wrong row, and not a wrong database."""


class Database:
    """An open database.

    A process that writes files by it holds the partition's lock. Other processes may read it at
    any time, and compression and retention of segments may write to it.
    """

    def __init__(self, path: Path) -> None:
        """Open a database; raises FileNotFoundError if there is none, OSError, `Damaged`."""
        with open_folder(path.parent) as folder:
            if folder.find(path.name) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        self._connect(path, _uri_of(path))
        try:
            with self._translate_errors():
                self._require_version()
                self._set_durability()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create the database unless it exists, and open it; raises OSError, `Damaged`."""
        with open_folder(path.parent) as folder:
            database = cls.__new__(cls)
            database._connect(path, _uri_of(path))
            with database, database._translate_errors():
                if database._read_version() == 0:
                    database._set_durability()
                    database._create_tables()
                    folder.sync()
        return cls(path)

    @classmethod
    def in_memory(cls) -> Self:
        """Return a database that is not on disk, for files that no other process writes to."""
        database = cls.__new__(cls)
        database._connect(_MEMORY, "file::memory:")
        database._create_tables()
        return database

    def _connect(self, path: Path, uri: str) -> None:
        self.path = path
        with self._translate_errors():
            self._sql = sqlite3.connect(
                uri, uri=True, timeout=_LOCK_PATIENCE, isolation_level=None, check_same_thread=False
            )
        self._sql.text_factory = _decode_text

    def _read_version(self) -> int:
        return int(self._sql.execute("PRAGMA user_version").fetchone()[0])

    def _require_version(self) -> None:
        version = self._read_version()
        if version == 0:
            raise FileNotFoundError(errno.ENOENT, "is an empty database", str(self.path))
        if version != _VERSION:
            reason = f"{self.path} has version {version}; this program reads version {_VERSION}"
            raise Damaged(self._partition, reason, remedies=())

    def _set_durability(self) -> None:
        mode = "WAL" if is_local(self.path.parent) else "TRUNCATE"
        self._sql.execute(f"PRAGMA journal_mode={mode}")
        self._sql.execute("PRAGMA synchronous=FULL")

    def _create_tables(self) -> None:
        with self.transaction():
            for statement in _SCHEMA.split(";\n"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version={_VERSION}")

    @property
    def inode(self) -> int:
        """The inode of the database file."""
        return inode_of(self.path.stat())

    @property
    def _partition(self) -> int:
        return int(self.path.stem.removeprefix("p"))

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error):
            self._sql.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # transactions and statements

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block as one transaction, on disk at the end. Raises OSError, `Damaged`."""
        with self._translate_errors():
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._sql.execute("ROLLBACK")
                raise
        if self.path != _MEMORY:
            raise_if_failed(self.path)

    @contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Read everything in the block as of one moment; raises OSError, `Damaged`."""
        with self._translate_errors():
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("ROLLBACK")

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Return the rows of a query; raises OSError, `Damaged`."""
        with self._translate_errors():
            return self._sql.execute(sql, _encode(values)).fetchall()

    def change(self, sql: str, *values: object) -> None:
        """Change rows, within a transaction."""
        self._sql.execute(sql, _encode(values))

    def change_all(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run a statement once with the values of each row, within a transaction."""
        self._sql.executemany(sql, map(_encode, rows))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise errors of SQLite as OSErrors that name the file, or as `Damaged`.

        `ROW_ERRORS` pass unchanged.
        """
        try:
            yield
        except ROW_ERRORS:
            raise
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code not in _ERRORS:
                raise self._damage(error) from None
            number = _ERRORS[code]
            if number == errno.EIO and _is_full(self.path.parent):
                number = errno.ENOSPC  # SQLite reports EIO if its -shm file finds the disk full
            raise OSError(number, os.strerror(number), str(self.path)) from None

    # checks

    def check(self) -> None:
        """Check every page, row and index, at some 7 MB/s; raises OSError, `Damaged`."""
        self._run_check("integrity_check")
        self.check_lengths()

    def check_pages(self) -> None:
        """Check every page, at some 100 MB/s; raises OSError, `Damaged`.

        By itself SQLite does not notice that the last page is cut off.
        """
        self._run_check("quick_check")

    def check_lengths(self) -> None:
        """Raise `Damaged` if an older database was put beside the -wal file of a newer one.

        The lengths of the files and the row of the batch then come from different transactions.
        """
        query = "SELECT 1 FROM batch WHERE bytes != (SELECT coalesce(sum(length), 0) FROM files)"
        if self.rows(query):
            raise self._damage(f"it is older than {self.path.name}-wal beside it")

    def _run_check(self, check: str) -> None:
        ((found, *_), *_) = self.rows(f"PRAGMA {check}(1)")
        if found != "ok":
            raise self._damage(" ".join(str(found).split()))

    def _damage(self, why: object) -> Damaged:
        reason = (
            f"{self.path} is damaged: {why}; restore a copy that fits the files, if you have one"
        )
        return Damaged(self._partition, reason)


def _encode(values: Iterable[object]) -> list[object]:
    return [_encode_text(value) if isinstance(value, str) else value for value in values]


def _uri_of(path: Path) -> str:
    """Return the URI by which SQLite opens a database.

    SQLite makes files beside a database that it reads. If we may not write to the folder, and no
    process has the database open, it is opened as a file that does not change.
    """
    is_closed = is_local(path.parent) and not os.path.lexists(f"{path}-wal")
    is_ours = os.access(path.parent, os.W_OK, effective_ids=True)
    mode = "immutable=1" if is_closed and not is_ours else "mode=rwc"
    return f"{path.absolute().as_uri()}?{mode}"


def _is_full(folder: Path) -> bool:
    with suppress(OSError):
        space = os.statvfs(folder)
        return space.f_bavail * space.f_frsize < _LEAST_SPACE
    return False
