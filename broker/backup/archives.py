"""Takes the archives of a running broker, while shippers publish and receivers commit, and checks them.

The buckets of offsets and positions are taken before the streams of lines: an entry can then lag behind the archived lines,
which costs reading again what the files or the stream have, and never point beyond them, which would skip lines. The
numbers of partitions and streams come last. An archive is nats-server's own format and opaque here.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import nats.errors

from broker.app.exits import OperatorError
from broker.app.files import Folder, open_folder, write_for_owner
from broker.app.progress import Advance, progress
from broker.backup.directory import NAME, Archive, Backup
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected
from broker.wire.descent import is_being_restored
from broker.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

__all__ = [
    "BUCKETS",
    "CHUNK",
    "PATIENCE",
    "WINDOW",
    "back_up",
    "check",
    "described",
    "lines_in",
    "stream_of",
]

BUCKETS = tuple(f"KV_{name}" for name in (OFFSETS_BUCKET, POSITIONS_BUCKET, CONFIG_BUCKET))

CHUNK, WINDOW = 128 * 1024, 2 * 1024 * 1024
"""The bytes of a chunk of an archive, and how many are under way at a time: memory stays flat whatever the archive's size."""
PATIENCE = 30.0
"""Seconds without a word from a server that is alive."""

_STREAM_NOT_FOUND = 10059
_MODE = 0o600  # it holds everybody's log lines
_SYNC_EVERY = (
    32 * 1024 * 1024
)  # bytes; to sync all at the end would hold up a broker on the same disk
_LINES = re.compile(rf"{STREAM}(_[0-9]+)?")


def stream_of(name: str) -> str:
    """Return the stream that a person means by the name of a stream or of one of our buckets."""
    return f"KV_{name}" if f"KV_{name}" in BUCKETS else name


async def lines_in(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams of lines that a broker has; raises `Rejected`, `ConnectionLost`."""
    names = (await connection.api("STREAM.NAMES")).get("streams") or []
    return tuple(sorted(name for name in names if _LINES.fullmatch(name)))


async def described(connection: Connection, stream: str) -> Mapping[str, Any] | None:
    """Return the description of a stream, None where there is none; raises `Rejected`, `ConnectionLost`."""
    try:
        return await connection.api(f"STREAM.INFO.{stream}")
    except Rejected as error:
        if error.error != _STREAM_NOT_FOUND:
            raise
        return None


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
    await asyncio.to_thread(write_for_owner, folder, NAME, backup.encode(), _MODE)
    return backup


def _order(stream: str) -> int:
    """Return when a stream is archived: offsets and positions first, then lines, then the numbers of partitions and streams."""
    return {BUCKETS[0]: 0, BUCKETS[1]: 0, BUCKETS[2]: 2}.get(stream, 1)


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
        with progress(f"backing up {stream}", int(info["state"]["bytes"])) as advance:
            file = _File(folder, name, advance)
            try:
                answer = await _take(connection, stream, file)
            finally:
                file.close()
    except ConnectionLost as error:
        raise OperatorError(
            f"the archive of {stream} was broken off: {error}; take the backup again"
        ) from None
    if (await _info(connection, stream))["created"] != info["created"]:
        raise OperatorError(f"stream {stream} was made anew meanwhile; take the backup again")
    return Archive(
        stream=stream,
        file=name,
        size=file.size,
        sha256=file.hash.hexdigest(),
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


class _File:
    """A file that is written once, readable by its owner alone, with its size in bytes and its SHA-256 on the way."""

    def __init__(self, folder: Folder, name: str, advance: Advance) -> None:
        opened = folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        self._file = os.fdopen(opened, "wb", buffering=0)
        self._advance = advance
        self._synced = 0
        self.hash = hashlib.sha256()
        self.size = 0

    def write(self, chunks: Sequence[bytes], *, is_last: bool) -> None:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
            self.hash.update(chunk)
            self.size += len(chunk)
            self._advance(len(chunk))
        if is_last or self.size - self._synced >= _SYNC_EVERY:
            self._synced = self.size
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


async def _take(connection: Connection, stream: str, file: _File) -> Mapping[str, Any]:
    """Have a stream's archive written to a file, and return the answer with its `config` and `state`.

    What is stored while this goes on is not in it. A chunk is acknowledged once it is written: the slower end sets the pace.
    """
    await connection.once()
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    inbox = connection.new_inbox()
    subscription = await connection.tap(inbox, arrived.put_nowait)
    body = {
        "deliver_subject": inbox,
        "no_consumers": False,
        "chunk_size": CHUNK,
        "window_size": WINDOW,
    }
    try:
        answer = await connection.api(f"STREAM.SNAPSHOT.{stream}", body, patience=PATIENCE)
        while not await _write_what_came(connection, arrived, file):
            pass
    finally:
        with suppress(nats.errors.Error):  # gone with its client
            await subscription.unsubscribe()
    return answer


async def _write_what_came(
    connection: Connection, arrived: "asyncio.Queue[RawMessage]", file: _File
) -> bool:
    """Write and acknowledge the chunks that are there; return whether that was the end."""
    chunks = [await connection.guard(arrived.get(), PATIENCE)]
    while not arrived.empty():
        chunks.append(arrived.get_nowait())
    # the last message carries nothing, or a status and nothing
    last = chunks.pop() if not chunks[-1].data else None
    headers = (last.headers if last else None) or {}
    if headers.get("Status", "204") != "204":
        raise ConnectionLost(headers.get("Description") or f"status {headers['Status']}")
    data = [chunk.data for chunk in chunks]
    await asyncio.to_thread(file.write, data, is_last=last is not None)
    for chunk in filter(lambda one: one.reply, chunks):
        await connection.publish(chunk.reply)
    return last is not None


def check(folder: Path, archive: Archive) -> None:
    """Compare an archive with what its manifest says of it; raises `OperatorError` for one that is not as it was written."""
    path = folder / archive.file
    try:
        with (
            open_folder(folder) as opened,
            os.fdopen(opened.open(archive.file, os.O_RDONLY), "rb") as file,
        ):
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}") from None
    if digest != archive.sha256:
        raise OperatorError(f"{path} is damaged: its SHA-256 is another; take another backup")
