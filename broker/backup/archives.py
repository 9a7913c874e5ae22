"""Takes the archives of a running broker, while shippers publish and receivers commit, and checks them.

The buckets of offsets and positions are taken before the streams of lines: an entry can then lag behind the archived lines,
which costs reading again what the files or the stream have, and never point beyond them, which would skip lines. The
numbers of partitions and streams come last.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from broker.app.exits import OperatorError
from broker.app.files import Folder, open_folder, replacing
from broker.app.progress import Advance, progress
from broker.app.units import format_size
from broker.backup.directory import NAME, Archive, Backup
from broker.backup.transfer import SnapshotFailed, described, take
from broker.client.connection import Connection, ConnectionLost
from broker.wire.descent import is_being_restored
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = ["BUCKETS", "back_up", "check", "lines_in", "stream_of"]

BUCKETS = tuple(f"KV_{name}" for name in (OFFSETS_BUCKET, POSITIONS_BUCKET, CONFIG_BUCKET))

_MODE = 0o600  # it holds everybody's log lines
_SYNC_EVERY = 32 * 1024 * 1024  # bytes
_READ = 1024 * 1024  # bytes
_LINES = re.compile(rf"{STREAM}(_[0-9]+)?")


def stream_of(name: str) -> str:
    """Return the stream that a person means by the name of a stream or of one of our buckets."""
    return f"KV_{name}" if f"KV_{name}" in BUCKETS else name


async def lines_in(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams of lines that a broker has; raises `Rejected`, `ConnectionLost`."""
    names = (await connection.api("STREAM.NAMES")).get("streams") or []
    return tuple(sorted(name for name in names if _LINES.fullmatch(name)))


async def back_up(
    connection: Connection, streams: Sequence[str], folder: Folder, clock: Callable[[], datetime]
) -> Backup:
    """Write the archives of some streams into an empty folder, and the manifest after them, all of it on disk.

    Of all streams of lines and buckets where none is named. Raises `OperatorError`, OSError, `Rejected`, `ConnectionLost`.
    """
    version = (await connection.once()).connected_server_version
    began = _stamp(clock())
    names = streams or (*BUCKETS, *await lines_in(connection))
    archives = [await _archive(connection, name, folder) for name in sorted(names, key=_order)]
    backup = Backup(
        began=began,
        ended=_stamp(clock()),
        server=connection.servers,
        server_version=f"{version.major}.{version.minor}.{version.patch}",
        archives=tuple(archives),
    )
    await asyncio.to_thread(_conclude, folder, backup)
    return backup


def _order(stream: str) -> int:
    """Return when a stream is archived: offsets and positions first, then lines, then the numbers of partitions and streams."""
    return {BUCKETS[0]: 0, BUCKETS[1]: 0, BUCKETS[2]: 2}.get(stream, 1)


def _conclude(folder: Folder, backup: Backup) -> None:
    with replacing(folder, NAME, _MODE) as half:
        half.file.write(backup.encode())


def _stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _archive(connection: Connection, stream: str, folder: Folder) -> Archive:
    info = await _info(connection, stream)
    if is_being_restored(info["config"]):
        raise OperatorError(
            f"stream {stream} is being restored, or was by half: wait for `logbroker restore`, or run it again"
        )
    name = f"{stream}.nats"
    try:
        with (
            progress(f"backing up {stream}", int(info["state"]["bytes"])) as advance,
            _Sink(folder, name, advance) as sink,
        ):
            answer = await take(connection, stream, sink.write)
            await asyncio.to_thread(sink.finish)
    except (SnapshotFailed, ConnectionLost) as error:
        raise OperatorError(
            f"the archive of {stream} was broken off: {error}; take the backup again"
        ) from None
    if (await _info(connection, stream))["created"] != info["created"]:
        raise OperatorError(f"stream {stream} was made anew meanwhile; take the backup again")
    return Archive(
        stream=stream,
        file=name,
        size=sink.size,
        sha256=sink.digest,
        created=info["created"],
        config=answer["config"],
        state=answer["state"],
    )


async def _info(connection: Connection, stream: str) -> Mapping[str, Any]:
    info = await described(connection, stream)
    if info is None:
        raise OperatorError(
            f"there is no stream {stream} at {connection.servers}; choose with --stream"
        )
    return info


class _Sink:
    """A file that is written once, readable by its owner alone, with its size in bytes and its SHA-256 on the way.

    It is synced now and then: all of it at the end would hold up a broker on the same disk.
    """

    def __init__(self, folder: Folder, name: str, advance: Advance) -> None:
        self._file = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        self._advance = advance
        self._hash = hashlib.sha256()
        self._unsynced = 0
        self.size = 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def __enter__(self) -> "_Sink":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, chunks: Sequence[bytes]) -> None:
        """Append; raises OSError."""
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._hash.update(chunk)
        size = sum(map(len, chunks))
        self.size += size
        self._unsynced += size
        self._advance(size)
        if self._unsynced >= _SYNC_EVERY:
            self._unsynced = 0
            os.fdatasync(self._file)

    def finish(self) -> None:
        """Have it on disk; raises OSError."""
        os.fsync(self._file)


def check(folder: Path, archive: Archive) -> None:
    """Compare an archive with what its manifest says of it; raises `OperatorError` for one that is not as it was written."""
    path = folder / archive.file
    digest, size = hashlib.sha256(), 0
    try:
        with (
            open_folder(folder) as opened,
            os.fdopen(opened.open(archive.file, os.O_RDONLY), "rb") as file,
            progress(f"checking {archive.stream}", archive.size) as advance,
        ):
            while data := file.read(_READ):
                digest.update(data)
                size += len(data)
                advance(len(data))
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}") from None
    if size != archive.size:
        raise OperatorError(
            f"{path} has {format_size(size)}, not the {format_size(archive.size)} ({archive.size} bytes) that were "
            "written: it is damaged, take another backup"
        )
    if digest.hexdigest() != archive.sha256:
        raise OperatorError(f"{path} is damaged: its SHA-256 is another; take another backup")
