"""A log as its application writes it, with an account of every byte on a disk that no fault hits.

A write that fails, or takes a part, is tried again until it succeeds.
"""

import os
from pathlib import Path

from tests.support.commands import retried

_HEADING = b"%b: here begins file %08d of this log, by a line long enough to be unique\n"


class LogFile:
    """One log, appended to at `path`; `account` gets the same bytes, over all rotations.

    `files` counts its files; the current one has `length` bytes and begins at byte `begins`.
    `halts` has the bytes before which a disk took only a part of a write, for a while.
    """

    def __init__(self, path: Path, account: Path) -> None:
        self.path = path
        self.files = self.begins = self.length = 0
        self.written = 0
        self.whole = 0
        self.halts: list[int] = []
        self._tag = path.name.encode()
        self._descriptor = -1
        account.parent.mkdir(parents=True, exist_ok=True)
        self._account = account.open("ab")

    def begin(self) -> None:
        """Go on in the file at the path from now on; it is made if it is not there."""
        retried(lambda: self.path.parent.mkdir(parents=True, exist_ok=True))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = retried(lambda: os.open(self.path, flags, 0o640))
        self.close()
        self._descriptor = descriptor
        self._begin_file()

    def truncate(self) -> None:
        retried(lambda: os.ftruncate(self._descriptor, 0))
        self._begin_file()

    def append(self, text: bytes) -> None:
        """Write it all, whatever the disk says meanwhile; a file's first line is unique."""
        if not self.length:
            text = _HEADING % (self._tag, self.files) + text
        while text:
            rest = text
            write = lambda rest=rest: os.write(self._descriptor, rest)  # noqa: E731
            taken = retried(write)
            self._count(text[:taken])
            text = text[taken:]
            self.halts += [self.written] if text else []

    def content(self) -> bytes:
        self._account.flush()
        return Path(self._account.name).read_bytes()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._account.flush()

    def _begin_file(self) -> None:
        self.files, self.begins, self.length = self.files + 1, self.written, 0

    def _count(self, taken: bytes) -> None:
        self._account.write(taken)
        newline = taken.rfind(b"\n")
        if newline >= 0:
            self.whole = self.written + newline + 1
        self.written += len(taken)
        self.length += len(taken)
