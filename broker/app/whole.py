"""Files that are there whole or as they were before, whatever happens meanwhile, and however many write the same one.

Each writer has a file of a name of its own beside it, and holds a lock on that as long as it is at it: where the lock is
free the writer has died, and the file may go. What somebody is at, on another machine too, stays.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from broker.app.exits import OperatorError
from broker.app.folder import Folder, Owner, give, open_folder

__all__ = [
    "HalfMade",
    "clear_away",
    "half_made",
    "replacing",
    "telling",
    "write_for_owner",
    "write_whole",
]

_SUFFIX = ".tmp"


@dataclass(frozen=True, slots=True)
class HalfMade:
    """A file that is being written, in a folder and under a name that nobody else has."""

    folder: Folder
    path: Path
    file: BinaryIO

    def put(self, name: str) -> None:
        """Have it take a name, in the place of what has it; raises OSError."""
        self.folder.rename(self.path.name, name)

    def link(self, name: str) -> None:
        """Have it take a name that nothing has; raises OSError, FileExistsError where something has it."""
        self.folder.link(self.path.name, name)


def write_whole(path: Path, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file so that it is there whole or as it was before, also after a crash; raises `OperatorError`.

    Text is written as UTF-8. From the first byte on nobody may do more with it than `mode` says.
    """
    with telling(path), open_folder(path.parent) as folder:
        _write(folder, path.name, content, mode, None)


def write_for_owner(folder: Folder, name: str, content: str | bytes, mode: int = 0o640) -> None:
    """Write a file as `write_whole` does; where root writes it, it gets the owner of the folder, who is to read it."""
    with telling(folder.path / name):
        _write(folder, name, content, mode, folder.owner)


def _write(folder: Folder, name: str, content: str | bytes, mode: int, owner: Owner | None) -> None:
    with replacing(folder, name, mode, owner) as half:
        half.file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Have an OSError from inside come as an `OperatorError` that says which file cannot be written."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"cannot write {path}: {error.strerror}; check the disk and the folder's owner"
        ) from None


@contextmanager
def replacing(
    folder: Folder, name: str, mode: int = 0o640, owner: Owner | None = None
) -> Iterator[HalfMade]:
    """Yield a file which, once all is written, takes the place of the one of that name, and is on disk; raises OSError."""
    with half_made(folder, name, mode, owner) as half:
        yield half
        half.file.flush()
        os.fsync(half.file.fileno())
        half.put(name)
    folder.sync()


@contextmanager
def half_made(
    folder: Folder, name: str, mode: int = 0o640, owner: Owner | None = None
) -> Iterator[HalfMade]:
    """Make a file, to be appended to, that is to be called `name`, for who writes it and then puts it in place.

    Those that dead writers of `name` have left are removed first, and this one when it was not renamed. Raises OSError.
    """
    clear_away(folder, name)
    half = _made(folder, name, mode)
    try:
        with half.file:
            if owner is not None:
                give(half.file.fileno(), owner)
            yield half
    except OSError as error:
        if error.filename is None:  # those of writing and syncing do not say which file
            error.filename = str(folder.path / name)
        raise
    finally:
        with suppress(OSError):  # it was renamed, or stays for the next one to clear away
            folder.remove(half.path.name)


def clear_away(folder: Folder, *names: str) -> None:
    """Remove what dead writers of these names have left half-made; what cannot be removed is left for the next time."""
    with suppress(OSError):
        for left in folder.names():
            if _is_half_made(left, names):
                with suppress(OSError):
                    _remove(folder, left)


def _is_half_made(left: str, names: tuple[str, ...]) -> bool:
    name, _, token = left.removesuffix(_SUFFIX).rpartition(".")
    return left.endswith(_SUFFIX) and bool(token) and name in names


def _made(folder: Folder, name: str, mode: int) -> HalfMade:
    while True:
        path = folder.path / f"{name}.{secrets.token_hex(4)}{_SUFFIX}"
        opened = folder.open(path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, mode)
        file = os.fdopen(opened, "wb")
        if _is_ours(file):
            return HalfMade(folder, path, file)
        file.close()


def _is_ours(file: BinaryIO) -> bool:
    """Take the lock; False where somebody who clears away was quicker, between our making the file and our locking it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # that's fine: where there are no locks nobody else gets one, and nothing is cleared away
    return os.fstat(file.fileno()).st_nlink > 0


def _remove(folder: Folder, left: str) -> None:
    # to be written, since a network file system gives no other lock of one's own
    opened = folder.open(left, os.O_RDWR)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.remove(left)
    finally:
        os.close(opened)
