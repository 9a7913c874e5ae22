"""Check that a task sees the driver's own folders, and that its locks work there.

On another machine a folder of the same name may be another one; on the driver's machine its disk
may have been unmounted. So the driver puts a mark into each folder once, and a task compares it. If
a folder is shared, locks must be shared too: only the lock keeps two attempts of a task apart.
"""

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from nats_logship.app.files import FOLDER_ID, open_folder
from nats_logship.app.locks import Lock, lock, try_lock
from receiver.consume.assignment import MarkedFolder

_checked: dict[MarkedFolder, tuple[int, ...] | None] = {}
"""What this process knows of the marks that it has checked."""


class WrongFolder(Exception):
    """The folder here is not the driver's, or the driver's lock on it has no effect here."""


def mark_folder(folder: Path) -> MarkedFolder:
    """Return an existing folder with its mark, made now if it has none; raises OSError."""
    if not _read_mark(folder):
        with open_folder(folder) as opened:
            descriptor = opened.open(FOLDER_ID, os.O_RDWR | os.O_CREAT, 0o644)
            with os.fdopen(descriptor, "r+") as file:
                lock(descriptor)  # of several receivers that start at a time, one marks the folder
                if not file.read():
                    file.write(secrets.token_hex(16))
                    file.flush()
                    os.fsync(descriptor)
            opened.sync()
    return MarkedFolder(folder, _read_mark(folder))


def _read_mark(folder: Path) -> str:
    with suppress(FileNotFoundError, NotADirectoryError), open_folder(folder) as opened:
        return opened.read(FOLDER_ID).decode("ascii", "replace").strip()
    return ""


def check_folder(one: MarkedFolder) -> None:
    """Raise `WrongFolder` unless the folder here is the driver's, and locked by it; or OSError.

    A process reads a mark again only if there is another file in its place.
    """
    found = _identify_mark(one.folder)
    if found is None or _checked.get(one) != found:
        _check_mark(one)
        _checked[one] = found


def _identify_mark(folder: Path) -> tuple[int, ...] | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.lstat(f"{folder}/{FOLDER_ID}")  # a Path takes longer to make than to look up
        return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
    return None


def _check_mark(one: MarkedFolder) -> None:
    if _read_mark(one.folder) != one.mark:
        raise WrongFolder(
            f"{one.folder} on {socket.gethostname()} is not the folder that the receiver was "
            "started with: is its disk mounted? Mount it, or start the receiver again; all "
            "executors of a cluster must see one shared folder"
        )
    is_free = False
    with suppress(PermissionError), _open_mark(one.folder, os.O_RDWR) as file:  # another user's
        is_free = try_lock(file.fileno())
    if is_free:
        raise WrongFolder(
            f"the driver's locks on {one.folder} do not reach {socket.gethostname()}; mount it "
            "with locks that all machines share, such as NFS version 4"
        )


@contextmanager
def hold_locks(folders: tuple[MarkedFolder, ...]) -> Iterator[None]:
    """Hold the shared locks that `check_folder` requires; several receivers can hold them."""
    with ExitStack() as stack:
        for one in folders:
            mark = stack.enter_context(_open_mark(one.folder, os.O_RDONLY))
            lock(mark.fileno(), kind=Lock.SHARED)
        yield


def _open_mark(folder: Path, flags: int) -> IO[bytes]:
    with open_folder(folder) as opened:
        return os.fdopen(opened.open(FOLDER_ID, flags), "r+b" if flags == os.O_RDWR else "rb")
