"""The book of credentials on disk, in the broker's folder: read, and changed by one program at a time, whole or not at all.

A book that is damaged or newer is refused with what to do, never replaced and never taken for an empty one.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.exits import ConfigurationError, OperatorError
from broker.granting.book import Book
from broker.granting.booktext import BookUnreadable, read_book, write_book
from broker.whole import write_whole

__all__ = ["BOOK", "HeldBook", "held_book", "load_book"]

BOOK = "credentials.json"
"""The name of the book in the broker's folder."""

_LOCK = "credentials.lock"
_PATIENCE = 10.0  # seconds: another command that changes thousands takes some
_LOOK_EVERY = 0.02


def load_book(folder: Path) -> Book:
    """Return the book of a broker's folder, an open one where there is none; raises `ConfigurationError`."""
    path = folder / BOOK
    try:
        return read_book(path.read_text("utf-8"))
    except FileNotFoundError:
        return Book()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror}; run this as the broker's user"
        ) from None
    except BookUnreadable as error:
        raise ConfigurationError(
            f"{path} {error}; put back a copy of it, or move it away and add all credentials again"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is damaged: not UTF-8; put back a copy of it") from None


class HeldBook:
    """A book that nobody else changes meanwhile."""

    def __init__(self, folder: Path) -> None:
        """Read it; raises `ConfigurationError`."""
        self.book = load_book(folder)
        self._folder = folder

    def write(self, book: Book) -> None:
        """Put a changed book in place; after a crash it is there whole or as before. Raises `OperatorError`."""
        path = self._folder / BOOK
        write_whole(path, write_book(book))
        _give_to_owner(path, self._folder)
        self.book = book


@contextmanager
def held_book(folder: Path, patience: float = _PATIENCE) -> Iterator[HeldBook]:
    """Hold the book of a folder, which is made when it is not there.

    Raises `OperatorError` kinds, also when somebody else holds it for `patience` seconds.
    """
    path = folder / _LOCK
    try:
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise OperatorError(
            f"cannot use the store {folder}: {error.strerror}; check --store-dir and its owner"
        ) from None
    try:
        _give_to_owner(path, folder)
        _lock(descriptor, folder, patience)
        yield HeldBook(folder)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, folder: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        if time.monotonic() >= deadline:
            raise OperatorError(
                f"another program is changing the credentials of {folder}; try again when it is done"
            )
        time.sleep(_LOOK_EVERY)


def _give_to_owner(path: Path, folder: Path) -> None:
    # who runs this as root must not leave a file that the broker's own user cannot read
    owner = folder.stat()
    with suppress(PermissionError):
        if os.geteuid() == 0:
            os.chown(path, owner.st_uid, owner.st_gid)
