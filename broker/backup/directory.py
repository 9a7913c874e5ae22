"""A folder of backups: each a folder of its own, named by the time of its beginning, and there whole or not at all.

`DIR/2026-11-21T164500Z/` with a manifest (`backup.json`: its archives, what is in them, and their digests) is a whole one;
`DIR/2026-11-21T164500Z.part/` is under way, or was left by a crash: that is no backup, and the next one sweeps it away.
"""

import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from broker.app.exits import OperatorError
from broker.app.files import Folder, make_folder, open_folder, read_file

__all__ = ["NAME", "Archive", "Backup", "find", "load", "name_of", "new_backup", "prune"]

NAME = "backup.json"
_PART = ".part"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Archive(_Value):
    """One stream: its file, the file's size in bytes and SHA-256, and what nats-server said of the stream.

    `created` is the stream's time of creation (RFC 3339), `config` and `state` are as the JetStream API has them, `state`
    as of the moment that the archive stands for. Consumers are in the archive.
    """

    stream: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+\.nats$")]
    size: int
    sha256: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]

    @model_validator(mode="after")
    def _is_of_one_stream(self) -> Self:
        if self.config.get("name") != self.stream:
            raise ValueError(f"{self.stream} is described as something else")
        return self

    @property
    def messages(self) -> int:
        """How many messages it holds."""
        return int(self.state.get("messages", 0))

    @property
    def bytes(self) -> int:
        """What they take in a store, in bytes."""
        return int(self.state.get("bytes", 0))

    def time(self, name: str) -> datetime:
        """Return a time of its state: `first_ts` or `last_ts`."""
        return datetime.fromisoformat(self.state[name])

    @property
    def until(self) -> int:
        """The first sequence that it does not hold any more."""
        return int(self.state.get("last_seq", 0)) + 1


class Backup(_Value):
    """A whole backup; times in RFC 3339, UTC: what was acknowledged before `began` is in it, after `ended` is not."""

    version: Literal[1] = 1
    began: str
    ended: str
    server: str
    server_version: str
    archives: tuple[Archive, ...]

    @property
    def size(self) -> int:
        """What the archives take on disk, in bytes."""
        return sum(archive.size for archive in self.archives)

    def encode(self) -> bytes:
        """Return the form on disk: JSON with a version."""
        return (json.dumps(self.model_dump(), indent=2) + "\n").encode()


@contextmanager
def new_backup(directory: Path, now: datetime) -> Iterator[Folder]:
    """Yield a folder to write a backup into, which gets its name in the end; removed again if that does not come.

    `now` in UTC. Raises `OperatorError` while another one is under way there, where the folder cannot be used, and where
    others may enter it.
    """
    whole = name_of(directory, now).name
    part = f"{whole}{_PART}"
    try:
        with make_folder(directory, 0o700) as folder:
            _take_over(folder)
            folder.make(part, 0o700).close()
            try:
                with folder.enter(part) as opened:
                    yield opened
                    opened.sync()
                folder.rename(part, whole)
                folder.sync()
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


def _take_over(folder: Folder) -> None:
    """Lock the folder until it is closed, and remove what a crash has left."""
    mode = stat.S_IMODE(os.fstat(folder.descriptor).st_mode)
    if mode & 0o077 or (os.geteuid() == 0 and folder.owner.user != 0):
        raise OperatorError(
            f"{folder.path} may be entered by others (owner {folder.owner.user}, mode {mode:04o}), and a backup holds all lines in "
            f"the clear: `chmod 700 {folder.path}`, and run this as its owner"
        )
    try:
        fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OperatorError(
            f"another backup to {folder.path} is under way; wait for its end"
        ) from None
    for name in folder.names():
        if name.endswith(_PART) and _NAME.fullmatch(name.removesuffix(_PART)):
            _remove(folder, name)


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
    path = folder / NAME
    try:
        return Backup.model_validate_json(read_file(path))
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise OperatorError(
            f"{path} is damaged, or of another version: {place}: {first['msg']}"
        ) from None
