"""Takes the archives of a running broker, while shippers publish and receivers commit.

The buckets of offsets and positions are taken before the streams of lines: an entry can then lag behind the archived lines,
which costs reading again what the files or the stream have, and never point beyond them, which would skip lines. The
numbers of partitions and streams come last. An archive is nats-server's own format and opaque here.

On disk each backup is a folder of its own, named by the time of its beginning, and there whole or not at all.
`DIR/2026-11-21T164500Z/` with a manifest (`backup.json`: its archives, what is in them, and their digests) is a whole one;
`DIR/2026-11-21T164500Z.part/` is under way, or was left by a crash: the next backup removes it.
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

from broker.inspect.reader import find_message
from broker.provision.apply import find_stream_info
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
from nats_logship.app.table import Advance, progress
from nats_logship.app.timestamps import format_datetime
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.restored import is_being_restored
from nats_logship.wire.streams import CONFIG_BUCKET, OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM

BUCKETS = tuple(f"KV_{name}" for name in (OFFSETS_BUCKET, POSITIONS_BUCKET, CONFIG_BUCKET))

CHUNK, WINDOW = 128 * 1024, 2 * 1024 * 1024
"""The bytes of a chunk of an archive, and how many are under way at a time: memory stays flat whatever the archive's size."""
PATIENCE = 30.0
"""Seconds without a word from a server that is alive."""

MANIFEST = "backup.json"
"""The name of the manifest."""
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z")
_SYNC_EVERY = 32 * 1024**2  # bytes; all at the end would hold up a broker on the same disk
_LINES = re.compile(rf"{STREAM}(_[0-9]+)?")
_AT_ONCE = 100  # entries that are read


class StreamArchive(BaseModel, frozen=True, extra="forbid", strict=True):
    """One stream: its file, the file's size in bytes and SHA-256, and what nats-server said of the stream.

    `created` is the stream's time of creation (RFC 3339), `config` and `state` are as the JetStream API has them, `state`
    as of the moment that the archive stands for. `replaced` holds those entries of a bucket, in base64 by subject, that were
    written while it was archived: nats-server loses what they replaced.
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
        """The first sequence that it does not hold any more."""
        return int(self.state.get("last_seq", 0)) + 1


class Backup(BaseModel, frozen=True, extra="forbid", strict=True):
    """A whole backup; what was acknowledged before `began` (RFC 3339, UTC) is in it."""

    version: Literal[1] = 1
    began: str
    server: str
    archives: tuple[StreamArchive, ...]


async def list_line_streams(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams of lines that a broker has; raises `Rejected`, `ConnectionLost`."""
    names = await connection.list_all("STREAM.NAMES", "streams")
    return tuple(sorted(name for name in names if _LINES.fullmatch(name)))


async def back_up(connection: Connection, folder: Path, began: datetime) -> Backup:
    """Write the archives of all streams into an empty folder, and the manifest after them, all of it on disk."""
    await connection.connect()
    offsets, positions, config = BUCKETS
    names = (offsets, positions, *await list_line_streams(connection), config)
    archives = [await _archive(connection, name, folder) for name in names]
    at = format_datetime(began, "milliseconds")
    backup = Backup(began=at, server=connection.servers, archives=tuple(archives))
    write_atomic(folder / MANIFEST, backup.model_dump_json(indent=2), 0o600)
    return backup


async def _archive(connection: Connection, stream: str, folder: Path) -> StreamArchive:
    info = await find_stream_info(connection, stream)
    if info is None or is_being_restored(info["config"]):
        raise OperatorError(
            f"there is no whole stream {stream} at {connection.servers}; run `logbroker apply`, or the same `logbroker restore` again"
        )
    path = folder / f"{stream}.nats"
    try:
        with (
            progress(f"backing up {stream}", int(info["state"]["bytes"])) as advance,
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        ):
            answer, sha256 = await _take(connection, stream, file, advance)
    except ConnectionLost as error:
        raise OperatorError(
            f"the archive of {stream} was broken off: {error}; take the backup again"
        ) from None
    if (await connection.api(f"STREAM.INFO.{stream}"))["created"] != info["created"]:
        raise OperatorError(f"stream {stream} was made anew meanwhile; take the backup again")
    state, is_bucket = answer["state"], stream in BUCKETS
    return StreamArchive(
        stream=stream,
        file=path.name,
        size=path.stat().st_size,
        sha256=sha256,
        created=info["created"],
        config=answer["config"],
        state=state,
        replaced=await _written_since(connection, stream, state) if is_bucket else {},
    )


async def _written_since(
    connection: Connection, stream: str, state: Mapping[str, Any]
) -> dict[str, str]:
    """Return the entries of a bucket that were written since a state, in base64 by subject.

    Each key is asked for: in a walk from sequence to sequence, one that is written again and again can always be ahead.
    """
    behind, found = {"seq": int(state["last_seq"]) + 1}, dict[str, str]()
    info = await connection.api(f"STREAM.INFO.{stream}", {"subjects_filter": ">"})

    async def ask(subject: str) -> None:
        async with gate:
            if entry := await find_message(connection, stream, {**behind, "next_by_subj": subject}):
                found[subject] = b64encode(entry.payload).decode("ascii")

    gate = asyncio.Semaphore(_AT_ONCE)
    await asyncio.gather(*map(ask, info["state"].get("subjects", {})))
    return found


def _write(file: BinaryIO, chunk: bytes, digest: "hashlib._Hash") -> None:
    """Write a chunk; have all on disk from time to time, and at the end, where the chunk is empty."""
    file.write(chunk)
    digest.update(chunk)
    if not chunk or file.tell() % _SYNC_EVERY < len(chunk):
        file.flush()
        os.fsync(file.fileno())


async def _take(
    connection: Connection, stream: str, file: BinaryIO, advance: Advance
) -> tuple[Mapping[str, Any], str]:
    """Write the archive of a stream as it is now, at the slower end's pace; return the answer with its `config` and `state`, and the digest."""
    await connection.connect()
    digest = hashlib.sha256()
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    async with connection.open_inbox(arrived.put_nowait) as inbox:
        # receivers make their consumers themselves; one in an archive would be in the way of one that they make meanwhile
        body = {"no_consumers": True, "deliver_subject": inbox}
        body |= {"chunk_size": CHUNK, "window_size": WINDOW}
        answer = await connection.api(f"STREAM.SNAPSHOT.{stream}", body, patience=PATIENCE)
        while (chunk := await connection.guard(arrived.get(), PATIENCE)).data:
            await asyncio.to_thread(_write, file, chunk.data, digest)
            if chunk.reply:
                await connection.publish(chunk.reply)
            advance(len(chunk.data))
        # the last message carries nothing, or a status and nothing
        headers = chunk.headers or {}
        if headers.get("Status", "204") != "204":
            raise ConnectionLost(headers.get("Description") or f"status {headers['Status']}")
        await asyncio.to_thread(_write, file, b"", digest)
    return answer, digest.hexdigest()


@contextmanager
def new_backup(directory: Path, now: datetime) -> Iterator[Path]:
    """Yield a folder that loses its suffix `.part` in the end, or is removed; raises `OperatorError` where another backup is under way, or others may enter."""
    part = directory / f"{now:%Y-%m-%dT%H%M%SZ}.part"
    with report_errors(directory), make_folder(directory, 0o700) as folder:
        _take_over(folder)
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


def _take_over(folder: Folder) -> None:
    """Lock the folder until it is closed, and remove what a crash has left."""
    mode = stat.S_IMODE(os.fstat(folder.descriptor).st_mode)
    if mode & 0o077 or (os.geteuid() == 0 and folder.owner[0] != 0):
        raise OperatorError(
            f"{folder.path} may be entered by others, and a backup holds all lines in the clear: "
            f"`chmod 700 {folder.path}`, and run this as its owner"
        )
    held = f"another backup to {folder.path} is under way; wait for its end"
    lock(folder.descriptor, held, patience=0.0)
    for left in folder.path.glob("*.part"):
        if _NAME.fullmatch(left.stem):
            shutil.rmtree(left, ignore_errors=True)


def prune(directory: Path, keep: int) -> list[Path]:
    """Remove all whole backups but the newest `keep`, and return what was removed; raises `OperatorError`."""
    with report_errors(directory, "remove old backups of"):
        surplus = _backups(directory)[:-keep]
        for path in surplus:
            (path / MANIFEST).unlink()  # first: what is removed by half is no backup
            shutil.rmtree(path)
    return surplus


def find_backup(folder: Path) -> Path:
    """Return the folder of a backup: the one given, or the newest on the directory given; raises `OperatorError`."""
    with report_errors(folder, "read"):
        found = [folder] if (folder / MANIFEST).is_file() else _backups(folder)
    if not found:
        raise OperatorError(f"there is no whole backup in {folder}")
    return found[-1]


def _backups(directory: Path) -> list[Path]:
    """Return the whole backups on a directory, oldest first."""
    found = (path for path in directory.iterdir() if _NAME.fullmatch(path.name))
    return sorted(path for path in found if (path / MANIFEST).is_file())


def load_backup(folder: Path) -> Backup:
    """Return what a backup says of itself; raises `OperatorError`."""
    path = folder / MANIFEST
    try:
        with report_errors(path, "read"):
            return Backup.model_validate_json(read_file(path))
    except ValidationError:
        raise OperatorError(f"{path} is damaged, or of another version") from None


def check_archive(folder: Path, archive: StreamArchive) -> None:
    """Compare an archive with its digest in the manifest; raises `OperatorError` where it is not as it was written."""
    path = folder / archive.file
    with report_errors(path, "read"), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != archive.sha256:
        raise OperatorError(f"{path} is damaged: its SHA-256 is another; take another backup")
