"""Spark's scratch folder: one per start, gone afterwards, also those of starts that were killed."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from broker.exits import OperatorError

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
            place.mkdir(parents=True, exist_ok=True)
            _sweep(place)
            folder = _enter(stack, place)
        except OSError as error:
            raise OperatorError(
                f"cannot make Spark's scratch folder in {place}: {error.strerror}; start again"
            ) from None
        stack.callback(_sweep, place)
        yield folder


def _enter(stack: ExitStack, place: Path) -> Path:
    while True:
        try:
            return stack.enter_context(_made(place))
        except (FileNotFoundError, BlockingIOError):
            if not place.is_dir():
                raise
            # that's fine: another start has taken it, which had no lock yet, for one that a killed start left


@contextmanager
def _made(place: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        with in_use(folder):
            yield folder
    finally:
        _remove(folder)


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
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        yield descriptor
    finally:
        os.close(descriptor)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's; that's fine, it stays
            try:
                descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                folder.rmdir()  # being made just now, or by somebody killed there: it is empty in both cases
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(descriptor)


def _remove(folder: Path) -> None:
    with suppress(OSError):  # that's fine: what is left is for a later start
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink(missing_ok=True)
        (folder / _LOCK).unlink(
            missing_ok=True
        )  # the last: without it nobody knows whose the rest is
        folder.rmdir()
