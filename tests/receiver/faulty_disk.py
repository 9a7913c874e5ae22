"""Disks that fail: at the n-th call that changes a file the call fails, or the process dies.

`FaultyDisk` also counts what a power cut would lose. After an fsync that failed, the kernel takes
pages for clean that never reached the disk: only bytes that are written again, or cut off, are
safe.
"""

import ctypes
import errno
import io
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from receiver.storage import disk

_SYNCS = ("fsync", "fdatasync")
_WRITES = ("write", "writev")
_FREEING = ("unlink", "ftruncate", "syncfs", *_SYNCS)  # what a full disk still allows
_CALLS = (*_SYNCS, *_WRITES, "ftruncate", "rename", "replace", "link", "unlink", "mkdir", "utime")


class Died(BaseException):
    """The process is dead; no code of ours may catch this."""


class Trouble(Enum):
    """What happens at the n-th call, with the error of the system and of SQLite."""

    ONCE = errno.EIO, sqlite3.SQLITE_IOERR
    """That call fails."""
    FULL = errno.ENOSPC, sqlite3.SQLITE_FULL
    """The disk is full from there on."""
    READ_ONLY = errno.EROFS, sqlite3.SQLITE_READONLY
    """Everything fails from there on."""
    DEATH = 0, 0
    """The process dies."""


class FaultyDisk:
    """Counts the calls that change files in this process, and makes trouble at the n-th."""

    def __init__(self, trouble: Trouble, at: int = sys.maxsize) -> None:
        self._trouble = trouble
        self.at = at
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._real_open = io.open
        self.calls = 0
        self.lost = 0
        self.synced: dict[int, int] = {}
        self.unsafe: dict[int, tuple[int, int, Path]] = {}
        self.written: dict[int, Path] = {}
        self.whole_syncs = 0

    @property
    def has_struck(self) -> bool:
        return self.calls >= self.at

    @contextmanager
    def plugged_in(self) -> Iterator[None]:
        with ExitStack() as stack:
            fakes: list[tuple[Any, str, Any]] = [(os, name, self._faulty(name)) for name in _CALLS]
            fakes += [(os, "open", self._open(os.open)), (io, "open", self._io_open)]
            fakes += [(sqlite3, "connect", self._connect(sqlite3.connect))]
            if disk.syncfs:
                fakes += [(disk, "syncfs", self._sync_whole(disk.syncfs))]
            for fake in fakes:
                stack.enter_context(patch.object(*fake))
            yield

    def _faulty(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if self.strikes(name):
                self._note_lost(name, arguments)
                if name in _WRITES and self._trouble is Trouble.FULL:
                    return self._half(arguments[0], arguments[1])
                raise self._error()
            gone = self._inode(name, arguments, named)
            answer = self._real[name](*arguments, **named)
            self.unsafe.pop(gone, None)
            self._note_done(name, arguments, answer)
            return answer

        return call

    def _inode(self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
        """Return the inode that a call frees, 0 for none: another file may get its number."""
        freed = {"unlink": 0, "replace": 1, "rename": 1}  # which argument names it
        if name not in freed:
            return 0
        folder = named.get("dir_fd", named.get("dst_dir_fd"))
        with suppress(FileNotFoundError):
            return os.stat(arguments[freed[name]], dir_fd=folder, follow_symlinks=False).st_ino
        return 0

    def strikes(self, name: str) -> bool:
        """Count a call, and return whether it fails."""
        self.calls += 1
        if self.calls < self.at:
            return False
        match self._trouble:
            case Trouble.ONCE:
                return self.calls == self.at
            case Trouble.FULL:
                return name not in (*_FREEING, "committed")
            case Trouble.READ_ONLY:
                return name != "committed"
        raise Died

    def _error(self) -> OSError:
        number, _ = self._trouble.value
        return OSError(number, os.strerror(number))

    def _half(self, descriptor: int, data: Any) -> int:
        whole = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        if len(whole) < 2:
            raise self._error()
        return int(self._real["write"](descriptor, bytes(whole)[: len(whole) // 2]))

    def _sync_whole(self, real: Callable[[int], int]) -> Callable[[int], int]:
        def call(descriptor: int) -> int:
            self.whole_syncs += 1
            struck = self.strikes("syncfs")
            device = os.fstat(descriptor).st_dev
            for inode, path in self.written.items():
                if not path.is_file() or path.stat().st_ino != inode:
                    continue
                if path.stat().st_dev != device:
                    continue
                if struck:
                    self._lose(inode, path.stat().st_size, path)
                else:
                    self.synced[inode] = path.stat().st_size
            if struck:
                ctypes.set_errno(self._error().errno or 0)
                return -1
            return real(descriptor)

        return call

    def _lose(self, inode: int, end: int, path: Path) -> None:
        begin = self.synced.get(inode, 0)
        if path.is_file() and begin < end:
            self.unsafe[inode] = (begin, end, path)
            self.lost += 1

    def _note_lost(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in _SYNCS:
            found = os.fstat(arguments[0])
            self._lose(found.st_ino, found.st_size, _path_of(arguments[0]))

    def _note_done(self, name: str, arguments: tuple[Any, ...], size: int) -> None:
        if name not in (*_WRITES, *_SYNCS, "ftruncate"):
            return
        found = os.fstat(arguments[0])
        inode = found.st_ino
        if name in _WRITES:
            self.written[inode] = _path_of(arguments[0])
            end = os.lseek(arguments[0], 0, os.SEEK_CUR)
            begin, until, path = self.unsafe.pop(inode, (0, 0, Path()))
            if end - size <= begin < end:
                begin = end
            if begin < until:
                self.unsafe[inode] = (begin, until, path)
        elif name in _SYNCS:
            self.synced[inode] = found.st_size
        else:
            begin, end, path = self.unsafe.pop(inode, (0, 0, Path()))
            if begin < min(end, arguments[1]):
                self.unsafe[inode] = (begin, min(end, arguments[1]), path)
            self.synced[inode] = min(self.synced.get(inode, 0), arguments[1])

    def _open(self, opened: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
            if flags & os.O_CREAT and self.strikes("open"):
                raise self._error()
            return opened(path, flags, *arguments, **named)

        return call

    def _connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """Let transactions of SQLite fail before they are on disk, or after."""
        disk = self

        class Faulty(sqlite3.Connection):
            def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                if sql != "COMMIT":
                    return super().execute(sql, *arguments)
                if disk.strikes("commit"):
                    raise disk.sql_error()
                done = super().execute(sql, *arguments)
                if disk.strikes("committed"):
                    raise disk.sql_error()
                return done

        return lambda *arguments, **named: connect(*arguments, factory=Faulty, **named)

    def sql_error(self) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError(f"for a test: {self._trouble.name}")
        error.sqlite_errorcode = self._trouble.value[1]  # type: ignore[misc] # as the library sets it
        return error

    def _io_open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        if mode != "wb":
            return self._real_open(file, mode, *arguments, **named)
        return io.BufferedWriter(_Raw(file, mode))


@contextmanager
def recorded_cuts(cuts: list[str] | None = None) -> Iterator[list[str]]:
    """Yield the files that this process truncates, each with the bytes that it has and had."""
    found: list[str] = [] if cuts is None else cuts
    real = os.ftruncate

    def cut(descriptor: int, length: int) -> None:
        size, name = os.fstat(descriptor).st_size, _path_of(descriptor).name
        found.append(f"{name}: {length} of {size} bytes")
        real(descriptor, length)

    with patch.object(os, "ftruncate", cut):
        yield found


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


class _Raw(io.FileIO):
    """A file whose calls go through the fakes."""

    def write(self, data: Any) -> int:
        return os.write(self.fileno(), bytes(data))


@contextmanager
def mounted(folder: Path, *options: str, kind: str = "tmpfs") -> Iterator[Path]:
    """Mount a file system on a folder; skips the test where that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", kind, "-o", ",".join(options) or "defaults", kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
