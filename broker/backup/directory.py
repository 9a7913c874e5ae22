"""A folder of backups: each a folder of its own, named by the time of its beginning, and there whole or not at all.

`DIR/2026-11-21T164500Z/` with a manifest is a whole one; `DIR/2026-11-21T164500Z.part/` is under way, or was left by a
crash: that is no backup, and the next one sweeps it away.
"""

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from broker.app.exits import OperatorError
from broker.app.files import Folder, make_folder, open_folder, read_file
from broker.backup.manifest import NAME, Backup, UnreadableBackup

__all__ = ["find", "load", "name_of", "new_backup", "prune"]

_PART = ".part"
_MODE, _OTHERS = 0o700, 0o077
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")


@contextmanager
def new_backup(directory: Path, now: datetime) -> Iterator[Folder]:
    """Yield a folder to write a backup into, which gets its name in the end; removed again if that does not come.

    `now` in UTC. Raises `OperatorError` while another one is under way there, where the folder cannot be used, and where
    others may enter it.
    """
    try:
        with make_folder(directory, _MODE) as folder, _lock(folder):
            _refuse_open(folder)
            _sweep(folder)
            whole = name_of(directory, now).name
            part = f"{whole}{_PART}"
            os.mkdir(part, _MODE, dir_fd=folder.descriptor)
            try:
                with folder.enter(part) as opened:
                    yield opened
                    opened.sync()
                _settle(folder, part, whole)
            except BaseException:
                _remove(folder, part)
                raise
    except OSError as error:
        raise OperatorError(
            f"cannot write the backup to {directory}: {error.strerror or error}; nothing is left of it there"
        ) from None


def name_of(directory: Path, now: datetime) -> Path:
    """Return the folder of the backup that began at a time."""
    return directory / f"{now:%Y-%m-%dT%H%M%SZ}"


def _refuse_open(folder: Folder) -> None:
    mode = stat.S_IMODE(os.fstat(folder.descriptor).st_mode)
    if os.geteuid() == 0 and folder.owner.user != 0:
        raise OperatorError(
            f"{folder.path} belongs to another user, who could put another backup in the place of this one: run this as "
            "that user, or name a folder of root's own"
        )
    if mode & _OTHERS:
        raise OperatorError(
            f"{folder.path} may be entered by others (mode {mode:04o}), and a backup holds all lines in the clear: "
            f"`chmod 700 {folder.path}`, or name a folder that is not there yet, which is made for you alone"
        )


def _settle(folder: Folder, part: str, whole: str) -> None:
    if whole in folder.names():
        raise OperatorError(
            f"{folder.path / whole} is there already, of this very second; try again"
        )
    folder.rename(part, whole)
    folder.sync()


@contextmanager
def _lock(directory: Folder) -> Iterator[None]:
    try:
        fcntl.flock(directory.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OperatorError(
            f"another backup to {directory.path} is under way; wait for its end"
        ) from None
    yield


def _sweep(directory: Folder) -> None:
    for name in directory.names():
        if name.endswith(_PART) and _NAME.fullmatch(name.removesuffix(_PART)):
            _remove(directory, name)


def _remove(directory: Folder, name: str) -> None:
    shutil.rmtree(name, ignore_errors=True, dir_fd=directory.descriptor)


def _backups(directory: Path) -> list[Path]:
    """Return the whole backups on a directory, oldest first."""
    found = (path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return sorted(path for path in found if (path / NAME).is_file())


def prune(directory: Path, keep: int) -> list[Path]:
    """Remove all whole backups but the newest `keep`, and return what was removed; raises `OperatorError`."""
    surplus = _backups(directory)[:-keep]
    try:
        with open_folder(directory) as folder:
            for path in surplus:
                with folder.enter(path.name) as one:
                    one.remove(NAME)  # first: what is removed by half is no backup
                _remove(folder, path.name)
    except OSError as error:
        raise OperatorError(f"cannot remove {error.filename}: {error.strerror}") from None
    return surplus


def find(folder: Path) -> Path:
    """Return the folder of a backup: the one given, or the newest on the directory given; raises `OperatorError`."""
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
        return Backup.decode(read_file(folder / NAME))
    except OSError as error:
        raise OperatorError(f"cannot read {folder / NAME}: {error.strerror}") from None
    except UnreadableBackup as error:
        raise OperatorError(f"{folder / NAME} is {error}") from None
