"""Spark's scratch folder: one per start, gone afterwards, also those of starts that were killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    try:
        place.mkdir(parents=True, exist_ok=True)
        _sweep(place)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {place}: {error.strerror}; start again"
        ) from None
    try:
        with in_use(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _sweep(place)


def _short_enough(parent: Path | None) -> Path:
    places = [Path(tempfile.gettempdir()).absolute(), Path("/tmp")]
    if parent is not None:
        places.insert(0, parent.absolute())
    return next((place for place in places if len(os.fsencode(place)) <= _LONGEST), places[-1])


@contextmanager
def in_use(folder: Path) -> Iterator[int]:
    """Keep the folder from being removed by another start, together with others who do.

    Yields the descriptor of the lock: a child that inherits it holds the lock as long as it lives.
    """
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        # a folder without a lock file is being made just now, or another user's; that's fine, it stays
        with suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
