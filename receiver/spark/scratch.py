"""Spark's scratch folder: one per start, gone afterwards, also those of starts that were killed."""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.folder import Folder, make_folder, open_folder

__all__ = ["in_use", "scratch_folder"]

_PREFIX = "logreceiver-"
_LOCK = ".lock"
_LONGEST = 40
"""Bytes; the kernel takes 107 for the path of a Unix socket, Spark's name for one has 42, our folder's 20."""


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder under `parent`, else under the system's temporary folder, else under /tmp: the first that is short.

    It is locked while in use; the folders of killed starts are recognised by their free lock and removed, those whose
    JVM is still ending by a later start, or at the end of this one. Raises `OperatorError` where its disk refuses.
    """
    place = _short_enough(parent)
    with ExitStack() as stack:
        try:
            make_folder(place, 0o755).close()
            _sweep(place)
            stack.callback(_sweep, place)  # also ours, whose lock is free by then
            folder = _locked_folder(stack, place)
        except OSError as error:
            raise OperatorError(
                f"cannot make Spark's scratch folder in {place}: {error.strerror}; start again"
            ) from None
        yield folder


def _locked_folder(stack: ExitStack, place: Path) -> Path:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        try:
            stack.enter_context(in_use(folder))
        except (FileNotFoundError, BlockingIOError):
            if not place.is_dir():
                raise
            # that's fine: another start has removed it, which had no lock yet, as one that a killed start left
        else:
            return folder


def _short_enough(parent: Path | None) -> Path:
    places = [Path(tempfile.gettempdir()).absolute(), Path("/tmp")]
    if parent is not None:
        places.insert(0, parent.absolute())
    return next((place for place in places if len(os.fsencode(place)) <= _LONGEST), places[-1])


@contextmanager
def in_use(folder: Path) -> Iterator[int]:
    """Keep the folder from being removed by another start, together with others who do; raises OSError.

    Yields the descriptor of the lock: a child that inherits it holds the lock as long as it lives.
    """
    with open_folder(folder) as opened:
        descriptor = opened.open(_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        yield descriptor
    finally:
        os.close(descriptor)


def _sweep(place: Path) -> None:
    with suppress(OSError), open_folder(place) as opened:
        for name in opened.names():
            if name.startswith(_PREFIX):
                with suppress(OSError):  # another user's, or no folder; that's fine, it stays
                    _remove_if_left(opened, name)


def _remove_if_left(place: Folder, name: str) -> None:
    with place.enter(name) as folder:
        if folder.owner.user != os.geteuid():
            return  # its owner could put anything in the place of what is removed
        try:
            descriptor = folder.open(_LOCK, os.O_RDWR)
        except FileNotFoundError:
            # being made just now, or by somebody killed there: it is empty in both cases
            os.rmdir(name, dir_fd=place.descriptor)
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(folder)
            os.rmdir(name, dir_fd=place.descriptor)
        finally:
            os.close(descriptor)


def _empty(folder: Folder) -> None:
    for name in folder.names():
        if name != _LOCK:
            _remove_one(folder, name)
    with suppress(FileNotFoundError):
        folder.remove(_LOCK)  # the last: without it nobody knows whose the rest is


def _remove_one(folder: Folder, name: str) -> None:
    found = os.stat(name, dir_fd=folder.descriptor, follow_symlinks=False)
    if stat.S_ISDIR(found.st_mode):
        shutil.rmtree(name, ignore_errors=True, dir_fd=folder.descriptor)
    else:
        with suppress(FileNotFoundError):
            folder.remove(name)
