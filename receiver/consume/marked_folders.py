"""Whether a task sees the very folders that the driver means, and not others of the same name on its own machine.

Those may be another machine's, or what is beneath a disk that is not mounted any more. A folder is told by a mark, which
is made in it once and stays. Where it is shared, locks must be shared, too: nothing else keeps two attempts apart.
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


class WrongFolder(Exception):
    """What is seen here is not the folder that was meant."""


def mark_folder(folder: Path) -> MarkedFolder:
    """Return a folder that exists as a place, marked now if it never was; raises OSError."""
    if not _mark_of(folder):
        with open_folder(folder) as opened:
            descriptor = opened.open(FOLDER_ID, os.O_RDWR | os.O_CREAT, 0o644)
            with os.fdopen(descriptor, "r+") as file:
                lock(descriptor)  # of several receivers that begin, one marks it
                if not file.read():
                    file.write(secrets.token_hex(16))
                    file.flush()
                    os.fsync(descriptor)
            opened.sync()
    return MarkedFolder(folder, _mark_of(folder))


def _mark_of(folder: Path) -> str:
    with suppress(FileNotFoundError, NotADirectoryError), open_folder(folder) as opened:
        return opened.read(FOLDER_ID).decode("ascii", "replace").strip()
    return ""


def check_folder(one: MarkedFolder) -> None:
    """Return when the folder that is seen here is the one that was meant, and the driver's lock is felt; raises `WrongFolder`, OSError."""
    if _mark_of(one.folder) != one.mark:
        raise WrongFolder(
            f"{one.folder} on {socket.gethostname()} is not the folder that the receiver was started with: is its disk "
            f"mounted? Mount it, or start the receiver again; all executors of a cluster must see one shared folder"
        )
    is_free = False
    with suppress(PermissionError), _mark(one.folder, os.O_RDWR) as file:  # another user's mark
        is_free = try_lock(file.fileno())
    if is_free:
        raise WrongFolder(
            f"the driver's locks on {one.folder} do not reach {socket.gethostname()}; mount it "
            "with locks that all machines share, such as NFS version 4"
        )


@contextmanager
def hold_locks(folders: tuple[MarkedFolder, ...]) -> Iterator[None]:
    """Hold the locks that `check_folder` asks for elsewhere; several receivers of one folder may."""
    with ExitStack() as stack:
        for one in folders:
            mark = stack.enter_context(_mark(one.folder, os.O_RDONLY))
            lock(mark.fileno(), kind=Lock.SHARED)
        yield


def _mark(folder: Path, flags: int) -> IO[bytes]:
    with open_folder(folder) as opened:
        return os.fdopen(opened.open(FOLDER_ID, flags), "r+b" if flags == os.O_RDWR else "rb")
