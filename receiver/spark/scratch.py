"""Spark's scratch folder in the system's temporary one: one per start, gone afterwards, also those of starts that were killed."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.app.exits import OperatorError

__all__ = ["in_use", "scratch_folder"]

_PREFIX = "logreceiver-"
_LONGEST = 40
"""Bytes; the kernel takes 107 for the path of a Unix socket, Spark's name for one has 42, our folder's 20."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder in TMPDIR, or in /tmp where that path is too long for sockets; raises `OperatorError`.

    It is locked while in use. The folders of killed starts are recognised by their free lock and removed, those whose
    JVM is still ending by a later start.
    """
    place = Path(tempfile.gettempdir()).absolute()
    if len(os.fsencode(place)) > _LONGEST:
        place = Path("/tmp")
    try:
        folder, lock = _locked_folder(place)
    except OSError as error:
        raise OperatorError(
            f"cannot make Spark's scratch folder in {place}: {error.strerror}; set TMPDIR to a folder with room"
        ) from None
    try:
        yield folder
    finally:
        os.close(lock)
        _sweep(place)  # also ours, where no JVM is left that holds its lock


def _locked_folder(place: Path) -> tuple[Path, int]:
    _sweep(place)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        with suppress(
            FileNotFoundError
        ):  # another start has taken it for one that a killed start left
            return folder, in_use(folder)


def in_use(folder: Path) -> int:
    """Return a lock that keeps a folder from being removed by other starts, as long as any process has it open.

    Raises OSError, FileNotFoundError where the folder was removed just now.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if not os.fstat(lock).st_nlink:
        os.close(lock)
        raise FileNotFoundError(folder)
    return lock


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # in use, no folder, or gone: left alone
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(lock).st_uid == os.geteuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
    finally:
        os.close(lock)
