"""Archives the streams of a running broker, and keeps backups on disk.

The buckets of offsets and positions are archived before the streams of lines. So an archived offset
can be lower than the last archived line, and lines are read again. It is never higher, which would
skip lines. The numbers of partitions and streams come last. An archive has nats-server's format.

A complete backup is a folder `DIR/2026-11-21T164500Z/` with a manifest, `backup.json`: its
archives, their content, and their digests. `DIR/2026-11-21T164500Z.part/` is under way, or was left
by a crash; then the next backup removes it.
"""

import asyncio
import hashlib
import os
import re
import shutil
import stat
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, Field, ValidationError

from broker.provision.apply import find_stream_info, list_all
from nats_logship.app.exits import OperatorError
from nats_logship.app.files import (
    Folder,
    make_folder,
    open_folder,
    read_file,
    report_errors,
    write_atomic,
)
from nats_logship.app.locks import lock
from nats_logship.app.progress import Advance, progress
from nats_logship.app.timestamps import format_datetime
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.restored import is_being_restored
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

BUCKETS = tuple(f"KV_{name}" for name in (OFFSETS_BUCKET, POSITIONS_BUCKET, CONFIG_BUCKET))

CHUNK, WINDOW = 128 * 1024, 2 * 1024 * 1024
"""Bytes of a chunk of an archive, and bytes under way at a time."""
PATIENCE = 30.0
"""Seconds to wait for the server's next message."""

MANIFEST = "backup.json"
"""The name of the manifest."""
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_SYNC_EVERY = 32 * 1024**2  # bytes; one sync at the end would block a broker on the same disk
_LINES = re.compile(rf"{STREAM}(_[0-9]+)?")
_AT_ONCE = 100  # entries that are read


class StreamArchive(BaseModel, frozen=True, extra="forbid", strict=True):
    """The archive of one stream.

    `size` (bytes) and `sha256` are those of `file`. `created` is when the stream was created
    (RFC 3339). `config` and `state` are nats-server's, `state` as of the archive. `replaced` holds,
    in base64 by subject, the entries of a bucket that were written during the archive: nats-server
    does not archive the entries that they replaced.
    """

    stream: str
    file: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+\.nats$")]
    size: int
    sha256: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]
    replaced: dict[str, str] = {}

    @property
    def until(self) -> int:
        """The sequence after the last one of the archive."""
        return int(self.state.get("last_seq", 0)) + 1


class Backup(BaseModel, frozen=True, extra="forbid", strict=True):
    """The manifest of a backup of all messages acknowledged before `began` (RFC 3339, UTC)."""

    version: Literal[1] = 1
    began: str
    server: str
    archives: tuple[StreamArchive, ...]


async def list_line_streams(connection: Connection) -> tuple[str, ...]:
    """Return the names of a broker's streams of lines; raises `Rejected`, `ConnectionLost`."""
    names = await list_all(connection, "STREAM.NAMES", "streams")
    return tuple(sorted(name for name in names if _LINES.fullmatch(name)))


async def back_up(connection: Connection, folder: Path, began: datetime) -> Backup:
    """Write and sync the archives of all streams, then the manifest, in an empty folder."""
    await connection.connect()
    offsets, positions, config = BUCKETS
    names = (offsets, positions, *await list_line_streams(connection), config)
    archives = [await _archive_stream(connection, name, folder) for name in names]
    at = format_datetime(began, "milliseconds")
    backup = Backup(began=at, server=connection.servers, archives=tuple(archives))
    write_atomic(folder / MANIFEST, backup.model_dump_json(indent=2), 0o600)
    return backup


async def _archive_stream(connection: Connection, stream: str, folder: Path) -> StreamArchive:
    info = await find_stream_info(connection, stream)
    if info is None or is_being_restored(info["config"]):
        raise OperatorError(
            f"stream {stream} is missing or partly restored at {connection.servers}; run "
            "`logbroker apply`, or the same `logbroker restore` again"
        )
    path = folder / f"{stream}.nats"
    try:
        with (
            progress(f"backing up {stream}", int(info["state"]["bytes"])) as advance,
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        ):
            answer, sha256 = await _receive(connection, stream, file, advance)
    except ConnectionLost as error:
        raise OperatorError(
            f"the archive of {stream} is incomplete: {error}; take the backup again"
        ) from None
    if (await connection.api(f"STREAM.INFO.{stream}"))["created"] != info["created"]:
        raise OperatorError(f"stream {stream} was created again meanwhile; take the backup again")
    state, is_bucket = answer["state"], stream in BUCKETS
    return StreamArchive(
        stream=stream,
        file=path.name,
        size=path.stat().st_size,
        sha256=sha256,
        created=info["created"],
        config=answer["config"],
        state=state,
        replaced=await _read_written_since(connection, stream, state) if is_bucket else {},
    )


async def _read_written_since(
    connection: Connection, stream: str, state: Mapping[str, Any]
) -> dict[str, str]:
    """Return the entries of a bucket that were written after a state, in base64 by subject.

    Each key is read by itself: reading from sequence to sequence might never reach the end of a
    bucket in which one key is written all the time.
    """
    after, found = {"seq": int(state["last_seq"]) + 1}, dict[str, str]()
    info = await connection.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})

    async def ask(subject: str) -> None:
        async with gate:
            if entry := await find_message(connection, stream, {**after, "next_by_subj": subject}):
                found[subject] = b64encode(entry.payload).decode("ascii")

    gate = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*map(ask, info["state"].get("subjects", {})))
    return found


def _write(file: BinaryIO, chunk: bytes, digest: "hashlib._Hash") -> None:
    """Write a chunk; sync every 32 MiB, and at the end (an empty chunk)."""
    file.write(chunk)
    digest.update(chunk)
    if not chunk or file.tell() % _SYNC_EVERY < len(chunk):
        file.flush()
        os.fsync(file.fileno())


async def _receive(
    connection: Connection, stream: str, file: BinaryIO, advance: Advance
) -> tuple[Mapping[str, Any], str]:
    """Write the archive of a stream to `file`; return its `config` and `state`, and the SHA-256.

    The server waits for acknowledgements, so it is no faster than our disk.
    """
    await connection.connect()
    digest = hashlib.sha256()
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    async with connection.open_inbox(arrived.put_nowait) as inbox:
        # receivers make their own consumers; archived ones would conflict with these
        body = {"no_consumers": True, "deliver_subject": inbox}
        body |= {"chunk_size": CHUNK, "window_size": WINDOW}
        answer = await connection.api(f"STREAM.SNAPSHOT.{stream}", body, patience=PATIENCE)
        while (chunk := await connection.guard(arrived.get(), PATIENCE)).data:
            await asyncio.to_thread(_write, file, chunk.data, digest)
            if chunk.reply:
                await connection.publish(chunk.reply)
            advance(len(chunk.data))
        # the last message is empty; it may have a status
        headers = chunk.headers or {}
        if headers.get("Status", "204") != "204":
            raise ConnectionLost(headers.get("Description") or f"status {headers['Status']}")
        await asyncio.to_thread(_write, file, b"", digest)
    return answer, digest.hexdigest()


@contextmanager
def new_backup(directory: Path, now: datetime) -> Iterator[Path]:
    """Yield a folder `*.part`, which loses the suffix at the end, or is removed after an error.

    Raises `OperatorError` if another backup is under way, or other users may enter `directory`.
    """
    part = directory / f"{now:%Y-%m-%dT%H%M%SZ}.part"
    with report_errors(directory), make_folder(directory, 0o700) as folder:
        _lock_and_clean(folder)
        part.mkdir(0o700)
        try:
            yield part
            with open_folder(part) as written:
                written.sync()
            part.rename(part.with_suffix(""))
            folder.sync()
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise


def _lock_and_clean(folder: Folder) -> None:
    """Lock the folder until it is closed, and remove parts that a crash has left."""
    mode = stat.S_IMODE(os.fstat(folder.descriptor).st_mode)
    if mode & 0o077 or (os.geteuid() == 0 and folder.owner[0] != 0):
        raise OperatorError(
            f"other users may enter {folder.path}, and a backup holds all lines unencrypted: "
            f"`chmod 700 {folder.path}`, and run this as its owner"
        )
    held = f"another backup to {folder.path} is under way; wait until it has ended"
    lock(folder.descriptor, held, patience=0.0)
    for left in folder.path.glob("*.part"):
        if _NAME.fullmatch(left.stem):
            shutil.rmtree(left, ignore_errors=True)


def prune(directory: Path, keep: int) -> list[Path]:
    """Remove and return all complete backups but the newest `keep`; raises `OperatorError`."""
    with report_errors(directory, "remove old backups of"):
        surplus = _list_backups(directory)[:-keep]
        for path in surplus:
            (path / MANIFEST).unlink()  # first, so that no incomplete backup looks complete
            shutil.rmtree(path)
    return surplus


def find_backup(folder: Path) -> Path:
    """Return `folder` if it is a backup, else the newest backup in it; raises `OperatorError`."""
    with report_errors(folder, "read"):
        found = [folder] if (folder / MANIFEST).is_file() else _list_backups(folder)
    if not found:
        raise OperatorError(f"there is no complete backup in {folder}")
    return found[-1]


def _list_backups(directory: Path) -> list[Path]:
    """Return the complete backups in a directory, oldest first."""
    found = (path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return sorted(path for path in found if (path / MANIFEST).is_file())


def load_backup(folder: Path) -> Backup:
    """Return the manifest of a backup; raises `OperatorError`."""
    path = folder / MANIFEST
    try:
        with report_errors(path, "read"):
            return Backup.model_validate_json(read_file(path))
    except ValidationError:
        raise OperatorError(f"{path} is damaged, or of another version") from None


def check_archive(folder: Path, archive: StreamArchive) -> None:
    """Compare an archive with its digest; raises `OperatorError` if they differ."""
    path = folder / archive.file
    with report_errors(path, "read"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != archive.sha256:
        raise OperatorError(f"{path} is damaged: its SHA-256 differs; take another backup")
