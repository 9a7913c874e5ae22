"""Whether a task sees the very folders that the driver means, and not others of the same name on its own machine.

Those may be another machine's, or what is beneath a disk that is not mounted any more. A folder is told by a mark, which
is made in it once and stays. Where it is shared, locks must be shared as well: two attempts at one partition are kept
apart by nothing else.
"""

import fcntl
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from receiver.consume.assignment import MarkedFolder
from receiver.storage.disk import descriptor_of, is_regular, read, sync_folder

__all__ = ["MARKED", "Elsewhere", "held", "is_held", "look", "marked_folder"]

MARKED = ".folder-id"
"""The file of a folder that has its mark."""


class Elsewhere(Exception):
    """What is seen here is not the folder that was meant."""


def marked_folder(folder: Path) -> MarkedFolder:
    """Return a folder that exists as a place, marked now if it never was; raises OSError."""
    path, mark = folder / MARKED, secrets.token_hex(16)
    if not is_regular(path):
        half = path.with_name(f"{MARKED}.{mark}")
        with os.fdopen(
            descriptor_of(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w"
        ) as new:
            new.write(f"{mark}\n")
            new.flush()
            os.fsync(new.fileno())
        with suppress(FileExistsError):  # that's fine: another receiver was quicker
            os.link(half, path, follow_symlinks=False)
        half.unlink()
        sync_folder(folder)
    return MarkedFolder(folder, read(path).decode("ascii", "replace").strip())


def look(one: MarkedFolder) -> None:
    """Return when the folder that is seen here is the one that was meant; raises `Elsewhere`, OSError."""
    try:
        seen = read(one.folder / MARKED).decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        seen = ""
    if seen != one.mark:
        raise Elsewhere(
            f"{one.folder} on {socket.gethostname()} is not the folder that the receiver was started with: is its disk "
            f"mounted? Mount it, or start the receiver again; all executors of a cluster must see one shared folder"
        )


@contextmanager
def held(folders: tuple[MarkedFolder, ...]) -> Iterator[None]:
    """Hold the locks that `is_held` asks for elsewhere; several receivers of one folder may."""
    with ExitStack() as stack:
        for one in folders:
            descriptor = descriptor_of(one.folder / MARKED, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def is_held(one: MarkedFolder) -> bool:
    """Whether the lock that the driver holds is felt here; raises OSError."""
    descriptor = descriptor_of(one.folder / MARKED, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
