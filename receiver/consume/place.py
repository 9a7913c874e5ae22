"""Whether a task sees the very folders that the driver means, and not others of the same name on its own machine.

That is another machine's, or what is beneath a disk that is not mounted any more. A folder is told by a mark that is made in it once and stays. Where it is shared, locks must be shared as well: two
attempts at one partition are kept apart by nothing else.
"""

import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from broker.app.folder import open_folder
from broker.app.whole import clear_away, half_made
from receiver.consume.assignment import Place
from receiver.storage.opening import descriptor_of, read

__all__ = [
    "MARKED",
    "Elsewhere",
    "held",
    "is_held",
    "is_mark",
    "local_place_of",
    "look",
    "place_of",
]

MARKED = ".place"
"""The file of a folder that has its mark."""
_MARK = re.compile("[0-9a-f]{32}")


class Elsewhere(Exception):
    """What is seen here is not the folder that was meant."""


def place_of(folder: Path) -> Place:
    """Return a folder that exists as a place, marked now if it never was; raises OSError."""
    path = folder / MARKED
    try:
        names = path.lstat().st_nlink
    except FileNotFoundError:
        _make(path)
    else:
        if (
            names > 1
        ):  # whoever made it died before it had but one; this folder is too large to look each time
            with open_folder(folder) as opened:
                clear_away(opened, MARKED)
    return Place(folder, read(path).decode("ascii", "replace").strip())


def local_place_of(folder: Path) -> Place:
    """Return a folder that exists as a place for tasks on this machine, marked now if it never was; raises OSError."""
    found = folder.stat()
    return replace(place_of(folder), device=found.st_dev, inode=found.st_ino)


def is_mark(text: str) -> bool:
    """Whether a text can be a mark, and not what damage has left of one."""
    return _MARK.fullmatch(text) is not None


def _make(path: Path) -> None:
    with open_folder(path.parent) as folder:
        with half_made(folder, path.name, 0o644) as half:
            half.file.write(f"{secrets.token_hex(16)}\n".encode())
            half.file.flush()
            os.fsync(half.file.fileno())
            with suppress(FileExistsError):  # that's fine: another receiver was quicker
                half.link(path.name)
        folder.sync()


def look(place: Place) -> None:
    """Return when the folder that is seen here is the one that was meant; raises `Elsewhere`, OSError."""
    try:
        found = place.folder.stat()
        if place.inode and (found.st_dev, found.st_ino) == (place.device, place.inode):
            return
        seen = read(place.folder / MARKED).decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        seen = ""
    if seen != place.mark and place.inode:
        raise Elsewhere(
            f"{place.folder} is not the folder that the receiver was started with: is its disk mounted? Mount it, or "
            "start the receiver again"
        )
    if seen != place.mark:
        raise Elsewhere(
            f"{place.folder} on {socket.gethostname()} is not the folder that the receiver was started with; "
            "all executors must see one shared folder, or run one receiver per machine with partitions of its own"
        )


@contextmanager
def held(places: tuple[Place, ...]) -> Iterator[None]:
    """Hold the locks that `is_held` asks for elsewhere; several receivers of one folder may."""
    with ExitStack() as stack:
        for place in places:
            descriptor = descriptor_of(place.folder / MARKED, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield


def is_held(place: Place) -> bool:
    """Whether the lock that the driver holds is felt here; raises OSError."""
    descriptor = descriptor_of(place.folder / MARKED, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
