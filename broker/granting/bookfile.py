"""The book of credentials on disk, in the broker's folder: read, and changed by one program at a time, whole or not at all.

A book that is damaged or newer is refused with what to do, never replaced and never taken for an empty one.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.folder import Folder, give, make_folder, open_folder
from broker.app.whole import write_for_owner
from broker.granting.book import Book
from broker.granting.booktext import BookUnreadable, read_book, write_book

__all__ = ["BOOK", "HeldBook", "held_book", "load_book"]

BOOK = "credentials.json"
"""The name of the book in the broker's folder."""

_LOCK = "credentials.lock"
_PATIENCE = 10.0  # seconds: another command that changes thousands takes some
_LOOK_EVERY = 0.02


def load_book(folder: Path) -> Book:
    """Return the book of a broker's folder, an open one where there is none; raises `ConfigurationError`."""
    try:
        with open_folder(folder) as opened:
            return _read(opened)
    except FileNotFoundError:
        return Book()
    except OSError as error:
        raise _unreadable(folder, error) from None


def _read(folder: Folder) -> Book:
    path = folder.path / BOOK
    try:
        return read_book(folder.read(BOOK).decode("utf-8"))
    except FileNotFoundError:
        return Book()
    except OSError as error:
        raise _unreadable(path, error) from None
    except BookUnreadable as error:
        raise ConfigurationError(
            f"{path} {error}; put back a copy of it, or move it away and add all credentials again"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is damaged: not UTF-8; put back a copy of it") from None


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"cannot read {path}: {error.strerror}; run this as the broker's user"
    )


class HeldBook:
    """A book that nobody else changes meanwhile."""

    def __init__(self, folder: Folder) -> None:
        """Read it; raises `ConfigurationError`."""
        self.book = _read(folder)
        self._folder = folder

    def write(self, book: Book) -> None:
        """Put a changed book in place; after a crash it is there whole or as before. Raises `OperatorError`.

        Where root writes it, it gets the owner of the folder: the broker must be able to read it.
        """
        write_for_owner(self._folder, BOOK, write_book(book))
        self.book = book


@contextmanager
def held_book(folder: Path, patience: float = _PATIENCE) -> Iterator[HeldBook]:
    """Hold the book of a folder, which is made when it is not there.

    Raises `OperatorError` kinds, also when somebody else holds it for `patience` seconds.
    """
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(make_folder(folder))
            descriptor = opened.open(_LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            at = error.filename if error.filename != str(folder) else f"the store {folder}"
            raise OperatorError(
                f"cannot use {at}: {error.strerror}; check --store-dir and its owner"
            ) from None
        stack.callback(os.close, descriptor)
        give(descriptor, opened.owner)
        _lock(descriptor, folder, patience)
        yield HeldBook(opened)


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
