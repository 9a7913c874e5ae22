"""Restores a backup: streams are closed while they are uploaded, and opened when all are complete.

If the restore is killed:
- before the first stream is deleted, nothing is changed;
- later, a stream is missing, incomplete or closed. Shippers wait, and `logbroker apply` changes
  nothing, since the bucket of settings is marked. The same restore begins again without asking.

The same holds if the server refuses an upload (no space, too few servers for the replicas). Streams
of lines are opened last, so no shipper publishes before offsets, positions and the number of
partitions are restored.
"""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import aiofiles

from broker.backup.archives import BUCKETS, CHUNK, PATIENCE, WINDOW, StreamArchive
from broker.backup.closing import (
    close_config,
    is_closed,
    mark_config,
    open_config,
    read_kept,
)
from broker.provision.apply import find_stream_info
from nats_logship.app.exits import OperatorError
from nats_logship.app.progress import progress
from nats_logship.app.text import format_count
from nats_logship.app.units import format_duration, format_size
from nats_logship.client.answer import ConnectionLost, Rejected, parse_answer
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.message import EXPECTED_SEQUENCE
from nats_logship.wire.restored import Ancestor, is_being_restored

_CONFIG = BUCKETS[2]
_OF_BROKER = ("num_replicas", "storage", "max_age", "max_bytes")  # fields that a restore keeps
_SETTLING = (0.1, 0.3, 1.0, 3.0)  # seconds between tries until all servers know a stream
_UPDATE = 60.0  # seconds for a change on a busy disk
_ACTIVATION = 600.0  # seconds for the server to create a stream from a whole archive
_AGAIN = "run the same `logbroker restore` again; until then nobody can write to these streams"
logger = logging.getLogger(__name__)


def find_kept(existing: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the fields that a restore keeps, by stream; `existing` is STREAM.INFO by name.

    A restore that was interrupted has saved them in each stream that it closed or marked.
    """
    configs = {name: info["config"] for name, info in existing.items()}
    saved = [read_kept(one) for one in configs.values() if is_being_restored(one)]
    own = {
        name: {field: config[field] for field in _OF_BROKER if field in config}
        for name, config in configs.items()
        if not is_being_restored(config)
    }
    return {**dict(chain.from_iterable(one.items() for one in saved)), **own}


def adapt(
    archive: StreamArchive, kept: Mapping[str, Mapping[str, Any]], now: datetime
) -> StreamArchive:
    """Return an archive with the configuration that its stream gets.

    Replicas, storage and limits are those that the broker declared, the result of `find_kept`. A
    max_age that would delete all lines at once is left out. A limit in bytes depends on the disk,
    so it is never that of the archive.
    """
    config = {**archive.config, "max_bytes": -1}
    if kept:
        config["num_replicas"] = next(iter(kept.values()))["num_replicas"]
    config |= kept.get(archive.stream, {})
    age = timedelta(microseconds=config.get("max_age", 0) // 1000)
    last = archive.state.get("last_ts") if archive.state.get("messages") else None
    if age and last and datetime.fromisoformat(last) < now - age:
        logger.warning(
            "%s is restored without its max_age of %s, which would delete all of it at once; "
            "`logbroker apply --max-age %s` sets it again",
            archive.stream,
            format_duration(age),
            format_duration(age),
        )
        config["max_age"] = 0
    return archive.model_copy(update={"config": config})


def preview(
    archives: Sequence[StreamArchive], existing: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return what a restore deletes, as text by stream; `existing` is STREAM.INFO by name.

    Raises `OperatorError` if the archives do not fit.
    """
    # on an empty broker the bucket of settings holds only the declared numbers
    is_empty = not any(_has_messages(info) for name, info in existing.items() if name != _CONFIG)
    deletes, kept = {}, find_kept(existing)
    for archive in archives:
        name, info, state = archive.stream, existing.get(archive.stream), archive.state
        if info and _has_messages(info) and not (is_empty and name == _CONFIG):
            deletes[name] = format_content(info["state"])
        size, limit = int(state.get("bytes", 0)), int(kept.get(name, {}).get("max_bytes", -1))
        if 0 <= limit < size:
            raise OperatorError(
                f"{name} takes {format_size(size)}, more than its limit of {format_size(limit)}; "
                "raise the limit by `logbroker apply --max-bytes`; nothing was changed"
            )
    return deletes


def _has_messages(info: Mapping[str, Any]) -> bool:
    return int(info["state"]["last_seq"]) > 0 and not is_closed(info["config"])


def format_content(state: Mapping[str, Any]) -> str:
    """Return the content of a stream as text; `state` is nats-server's."""
    size = format_size(int(state["bytes"]))
    times = f", {state['first_ts'][:19]}Z to {state['last_ts'][:19]}Z" if state["messages"] else ""
    sequences = f"{state['first_seq']} to {state['last_seq']}"
    return f"{format_count(state['messages'], 'message')} ({size}), sequences {sequences}{times}"


async def find_streams(
    connection: Connection, streams: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return STREAM.INFO of the streams that exist; raises `Rejected`, `ConnectionLost`."""
    infos = {name: await find_stream_info(connection, name) for name in streams}
    return {name: info for name, info in infos.items() if info is not None}


async def restore(connection: Connection, folder: Path, archives: Sequence[StreamArchive]) -> None:
    """Replace the streams by the archives of a checked backup; raises `OperatorError`."""
    # lines first, so that they are opened last
    ordered = sorted(archives, key=lambda one: (one.stream == _CONFIG, one.stream in BUCKETS))
    existing = await find_streams(connection, [_CONFIG, *(one.stream for one in ordered)])
    now, kept = datetime.now(UTC), find_kept(existing)  # noqa: TID251 - the shell's clock
    ordered = [adapt(one, kept, now) for one in ordered]
    try:
        # marked, so that a broker that starts meanwhile does not create a stream that shippers fill
        if settings := existing.get(_CONFIG):
            marked = mark_config(settings["config"], kept)
            await connection.api(f"STREAM.UPDATE.{_CONFIG}", marked, _UPDATE)
        for archive in ordered:
            await _replace(connection, folder, archive, kept)
        if _CONFIG not in {archive.stream for archive in ordered}:
            await _open(connection, _CONFIG, {})
        for archive in reversed(ordered):
            limit = {"max_bytes": archive.config["max_bytes"]}
            await _open(connection, archive.stream, limit, archive.config)
            await _complete(connection, archive)
    except Rejected as error:
        raise OperatorError(f"nats-server refuses: {error.description}; {_AGAIN}") from None
    except (ConnectionLost, OSError) as error:
        raise OperatorError(f"the restore is incomplete: {error}; {_AGAIN}") from None
    except (SystemExit, asyncio.CancelledError):
        logger.warning("the restore is incomplete; %s", _AGAIN)
        raise


async def _complete(connection: Connection, archive: StreamArchive) -> None:
    """Write the entries of a bucket that are missing in its archive."""
    for subject, data in archive.replaced.items():
        try:
            await connection.ask(subject, b64decode(data), {EXPECTED_SEQUENCE: "0"})
        except Rejected as error:
            if not error.is_wrong_sequence:  # it exists already
                raise


async def _replace(
    connection: Connection,
    folder: Path,
    archive: StreamArchive,
    kept: Mapping[str, Mapping[str, Any]],
) -> None:
    """Replace a stream by its archive, closed.

    It has no limit in bytes: nats-server reserves space for a limit, and after a crash this
    reservation would block the next attempt.
    """
    config = {**archive.config, "max_bytes": -1}
    closed = close_config(config, Ancestor(archive.created, archive.until), kept)
    try:
        await connection.api(f"STREAM.DELETE.{archive.stream}", patience=_UPDATE)
    except Rejected as error:
        if not error.is_absent:
            raise
    made = await _upload(connection, closed, archive, folder / archive.file)
    if (last := int(made["state"]["last_seq"])) != archive.until - 1:
        raise OperatorError(
            f"stream {archive.stream} ends at sequence {last}, but at {archive.until - 1} in the "
            f"backup; {_AGAIN}"
        )


async def _upload(
    connection: Connection, config: Mapping[str, Any], archive: StreamArchive, path: Path
) -> Mapping[str, Any]:
    """Create a stream from an archive, and return STREAM.INFO.

    Raises `Rejected` or `ConnectionLost`; the server then keeps a part of the stream.
    """
    answers: asyncio.Queue[RawMessage] = asyncio.Queue()
    client = await connection.connect()
    body = {"config": config, "state": archive.state}
    begun = await connection.api(f"STREAM.RESTORE.{archive.stream}", body, patience=PATIENCE)
    chunk, subject = min(CHUNK, client.max_payload), begun["deliver_subject"]
    under_way = 0
    async with connection.open_inbox(answers.put_nowait) as inbox:
        with progress(f"restoring {archive.stream}", archive.size) as advance:
            async with aiofiles.open(path, "rb") as file:
                while (data := await file.read(chunk)) or under_way:
                    if data:
                        await connection.publish(subject, data, reply=inbox)
                        advance(len(data))
                        under_way += 1
                    if not data or under_way >= max(1, WINDOW // chunk):
                        _check_taken(await connection.guard(answers.get(), PATIENCE, subject))
                        under_way -= 1
        await connection.publish(subject, b"", reply=inbox)
        return parse_answer((await connection.guard(answers.get(), _ACTIVATION)).data)


def _check_taken(answer: RawMessage) -> None:
    """Raise `Rejected` or `ConnectionLost` unless the server has taken a chunk."""
    if answer.data:
        parse_answer(answer.data)
        raise ConnectionLost("the server ended the restore before the end of the archive")
    if (answer.headers or {}).get("Status") == "503":
        raise ConnectionLost("the server has cancelled the restore")


async def _open(
    connection: Connection,
    stream: str,
    changes: Mapping[str, Any],
    archived: Mapping[str, Any] | None = None,
) -> None:
    """Open a stream that was closed or marked, and retry while a server does not know it yet."""
    for pause in (*_SETTLING, None):
        try:
            if info := await find_stream_info(connection, stream):
                config = {**open_config(info["config"], archived or info["config"]), **changes}
                await connection.api(f"STREAM.UPDATE.{stream}", config, _UPDATE)
        except Rejected:
            if pause is None:
                raise
            await asyncio.sleep(pause)
        else:
            return
