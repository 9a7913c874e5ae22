"""A folder of backups: each a folder of its own, named by the time of its beginning, and there whole or not at all.

`DIR/2026-11-21T164500Z/` with a manifest is a whole one; `DIR/2026-11-21T164500Z.part/` is under way, or was left by a
crash: that is no backup, and the next one sweeps it away.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from broker.exits import OperatorError
from broker.keeping.manifest import NAME, Backup, UnreadableBackup

__all__ = ["find", "load", "name_of", "new_backup", "prune", "synced"]

_PART = ".part"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")


@contextmanager
def new_backup(shelf: Path, now: datetime) -> Iterator[Path]:
    """Yield a folder to write a backup into, which gets its name in the end; removed again if that does not come.

    `now` in UTC. Raises `OperatorError` while another one is under way there, or where the folder cannot be used.
    """
    try:
        shelf.mkdir(mode=0o750, parents=True, exist_ok=True)
        with _lock(shelf):
            _sweep(shelf)
            whole = name_of(shelf, now)
            part = whole.with_name(f"{whole.name}{_PART}")
            part.mkdir(mode=0o700)
            try:
                yield part
                synced(part)
                _settle(part, whole)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
    except OSError as error:
        raise OperatorError(
            f"cannot write the backup to {shelf}: {error.strerror or error}; nothing is left of it there"
        ) from None


def name_of(shelf: Path, now: datetime) -> Path:
    """Return the folder of the backup that began at a time."""
    return shelf / f"{now:%Y-%m-%dT%H%M%SZ}"


def _settle(part: Path, whole: Path) -> None:
    if whole.exists():
        raise OperatorError(f"{whole} is there already, of this very second; try again")
    part.rename(whole)
    synced(whole.parent)


def synced(folder: Path) -> None:
    """Have the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _lock(shelf: Path) -> Iterator[None]:
    descriptor = os.open(shelf, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise OperatorError(f"another backup to {shelf} is under way; wait for its end") from None
    finally:
        os.close(descriptor)


def _sweep(shelf: Path) -> None:
    for path in shelf.glob(f"*{_PART}"):
        if _NAME.fullmatch(path.name.removesuffix(_PART)):
            shutil.rmtree(path, ignore_errors=True)


def _backups(shelf: Path) -> list[Path]:
    """Return the whole backups on a shelf, oldest first."""
    found = (path for path in shelf.iterdir() if _NAME.fullmatch(path.name))
    return sorted(path for path in found if (path / NAME).is_file())


def prune(shelf: Path, keep: int) -> list[Path]:
    """Remove all whole backups but the newest `keep`, and return what was removed."""
    surplus = _backups(shelf)[:-keep]
    for path in surplus:
        (path / NAME).unlink()  # first: what is removed by half is no backup
        shutil.rmtree(path, ignore_errors=True)
    return surplus


def find(folder: Path) -> Path:
    """Return the folder of a backup: the one given, or the newest on the shelf given; raises `OperatorError`."""
    if (folder / NAME).is_file():
        return folder
    try:
        found = _backups(folder)
    except OSError as error:
        raise OperatorError(f"cannot read {folder}: {error.strerror}") from None
    if not found:
        raise OperatorError(f"there is no whole backup in {folder}")
    return found[-1]


def load(folder: Path) -> Backup:
    """Return what a backup says of itself; raises `OperatorError`."""
    try:
        return Backup.decode((folder / NAME).read_bytes())
    except OSError as error:
        raise OperatorError(f"cannot read {folder / NAME}: {error.strerror}") from None
    except UnreadableBackup as error:
        raise OperatorError(f"{folder / NAME} is {error}") from None
