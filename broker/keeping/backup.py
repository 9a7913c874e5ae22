"""Backups taken from a running broker, while shippers publish and receivers commit.

The buckets of offsets and positions are taken before the stream: an entry can then lag behind the archived stream, which
costs reading again what the files or the stream have, and never point beyond it, which would skip lines. The number of
partitions comes last.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from broker.app.exits import OperatorError
from broker.app.folder import Folder, open_folder
from broker.app.sizes import format_size
from broker.app.whole import replacing
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.keeping.manifest import NAME, Archive, Backup
from broker.keeping.progress import Tell, progress
from broker.keeping.transfer import NARROW, WIDE, SnapshotFailed, Window, take
from broker.wire.descent import is_being_restored
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = ["STREAMS", "Sink", "back_up", "check", "stream_of"]

STREAMS = (f"KV_{OFFSETS_BUCKET}", f"KV_{POSITIONS_BUCKET}", STREAM, f"KV_{CONFIG_BUCKET}")
"""What is backed up unless something else is asked for, in the order in which it has to be."""

_MODE = 0o600  # it holds everybody's log lines
_ATTEMPTS = (WIDE, NARROW, NARROW)
_SYNC_EVERY = 32 * 1024 * 1024  # bytes
_READ = 1024 * 1024  # bytes
_STREAM_NOT_FOUND = 10059
logger = logging.getLogger(__name__)


def stream_of(name: str) -> str:
    """Return the stream that a person means by the name of a stream or of one of our buckets."""
    return f"KV_{name}" if f"KV_{name}" in STREAMS else name


async def back_up(
    connection: Connection, streams: Sequence[str], folder: Folder, clock: Callable[[], datetime]
) -> Backup:
    """Write the archives of some streams into an empty folder, and the manifest after them, all of it on disk.

    Raises `OperatorError`, OSError, `Rejected`, `ConnectionLost`.
    """
    client = await connection.once()
    version = client.connected_server_version
    ordered = sorted(streams, key=lambda name: STREAMS.index(name) if name in STREAMS else 0)
    began = _stamp(clock())
    archives = [await _archive(connection, stream, folder) for stream in ordered]
    backup = Backup(
        began,
        _stamp(clock()),
        connection.servers,
        f"{version.major}.{version.minor}.{version.patch}",
        tuple(archives),
    )
    await asyncio.to_thread(_conclude, folder, backup)
    return backup


def _conclude(folder: Folder, backup: Backup) -> None:
    with replacing(folder, NAME, _MODE) as half:
        half.file.write(backup.encode())


def _stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _archive(connection: Connection, stream: str, folder: Folder) -> Archive:
    for number, window in enumerate(_ATTEMPTS, 1):
        try:
            return await _attempt(connection, stream, folder, window)
        except SnapshotFailed as error:
            reason = f"nats-server broke off the archive of {stream}: {error}"
            if not error.may_pass or number == len(_ATTEMPTS):
                raise OperatorError(f"{reason}{_advice(error)}") from None
        except ConnectionLost as error:
            reason = f"the archive of {stream} did not come through: {error}"
            if number == len(_ATTEMPTS):
                raise OperatorError(reason) from None
        logger.warning("%s; taking it from its beginning again", reason)
    raise AssertionError("the last attempt returns or raises")


def _advice(error: SnapshotFailed) -> str:
    if error.may_pass:
        return "; the line or the disk here is too slow"
    return "; a message that it cannot read can be taken out by `logbroker rm --seq`"


async def _attempt(connection: Connection, stream: str, folder: Folder, window: Window) -> Archive:
    info = await _info(connection, stream)
    if is_being_restored(info["config"]):
        raise OperatorError(
            f"stream {stream} is being restored, or was by half: wait for `logbroker restore`, or run it again"
        )
    size = int(info["state"]["bytes"])
    name = f"{stream}.nats"
    with progress(f"backing up {stream}", size) as tell, Sink(folder, name, tell) as sink:
        answer = await take(connection, stream, window, sink.write)
        await asyncio.to_thread(sink.finish)
    if (await _info(connection, stream))["created"] != info["created"]:
        raise OperatorError(f"stream {stream} was made anew meanwhile; take the backup again")
    return Archive(
        stream,
        name,
        sink.size,
        sink.digest,
        info["created"],
        answer["config"],
        answer["state"],
    )


async def _info(connection: Connection, stream: str) -> Mapping[str, Any]:
    try:
        return await connection.api(f"STREAM.INFO.{stream}")
    except Rejected as error:
        if error.error != _STREAM_NOT_FOUND:
            raise
        raise OperatorError(
            f"there is no stream {stream} at {connection.servers}; choose with --stream"
        ) from None


class Sink:
    """A file that is written once, with its size in bytes and its SHA-256 on the way.

    What was written is sent on to the disk all the while: all of it at the end would hold up a broker on the same disk.
    """

    def __init__(self, folder: Folder, name: str, tell: Tell = lambda _: None) -> None:
        """Nothing is opened before it is entered; an earlier attempt's file goes."""
        self._folder = folder
        self._name = name
        self._tell = tell
        self._hash = hashlib.sha256()
        self._syncing: Future[None] | None = None
        self._unsynced = 0
        self.size = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of what was written, in hex."""
        return self._hash.hexdigest()

    def __enter__(self) -> "Sink":
        """Open it, readable by its owner alone: it holds everybody's log lines."""
        with suppress(FileNotFoundError):
            self._folder.remove(self._name)
        self._file = self._folder.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        self._beside = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._beside.shutdown()
        os.close(self._file)

    def write(self, chunks: Sequence[bytes]) -> None:
        """Append; raises OSError."""
        size = sum(map(len, chunks))
        written = os.writev(self._file, chunks)
        rest = memoryview(b"".join(chunks))[written:] if written < size else b""
        while rest:
            rest = rest[os.write(self._file, rest) :]
        for chunk in chunks:
            self._hash.update(chunk)
        self.size += size
        self._tell(size)
        self._sync_beside(size)

    def _sync_beside(self, size: int) -> None:
        self._unsynced += size
        if self._unsynced < _SYNC_EVERY or (self._syncing and not self._syncing.done()):
            return
        self._unsynced = 0
        self._syncing = self._beside.submit(os.fdatasync, self._file)

    def finish(self) -> None:
        """Have it on disk; raises OSError, also for what went wrong on the way."""
        if self._syncing is not None:
            self._syncing.result()
        os.fsync(self._file)


def check(folder: Path, archive: Archive) -> None:
    """Hold an archive against what its manifest says of it; raises `OperatorError` for one that is not as it was written."""
    path = folder / archive.file
    digest, size = hashlib.sha256(), 0
    try:
        with (
            open_folder(folder) as opened,
            os.fdopen(opened.open(archive.file, os.O_RDONLY), "rb") as file,
            progress(f"checking {archive.stream}", archive.size) as tell,
        ):
            while data := file.read(_READ):
                digest.update(data)
                size += len(data)
                tell(len(data))
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}") from None
    if size != archive.size:
        raise OperatorError(
            f"{path} has {format_size(size)}, not the {format_size(archive.size)} ({archive.size} bytes) that were "
            "written: it is damaged, take another backup"
        )
    if digest.hexdigest() != archive.sha256:
        raise OperatorError(f"{path} is damaged: its SHA-256 is another; take another backup")
