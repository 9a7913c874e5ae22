"""Restores a backup: closed to everybody while it is read in, opened when all of it is there.

What if we die here:
- before the first stream is deleted: nothing has happened;
- while archives are read in: a stream is gone, or holds a part under a subject that nobody publishes to; shippers wait,
  `logbroker apply` changes nothing since the bucket of settings is marked, and the same restore begins again without asking;
- while they are opened: the same; streams of lines come last, so nobody ships before offsets, positions and the number
  of partitions are back.

What the server refuses while archives are read in (no space, too few servers for the replicas) leaves the same state.
"""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiofiles

from broker.backup.archives import BUCKETS, CHUNK, PATIENCE, WINDOW, StreamArchive
from broker.backup.closing import close_config, is_closed, mark_config, open_config
from broker.provision.apply import find_stream_info
from nats_logship.app.exits import OperatorError
from nats_logship.app.table import progress
from nats_logship.app.text import format_count
from nats_logship.app.units import format_duration, format_size
from nats_logship.client.answer import ConnectionLost, Rejected, parse_answer
from nats_logship.client.connection import Connection
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.message import EXPECTED_SEQUENCE
from nats_logship.wire.restored import Ancestor, is_being_restored

_CONFIG = BUCKETS[2]
_OF_BROKER = ("num_replicas", "storage", "max_age")
_SETTLING = (0.1, 0.3, 1.0, 3.0)  # seconds; servers of a cluster learn of a stream by and by
_UPDATE = 60.0  # seconds for a change, which a busy disk holds up
_ACTIVATION = 600.0  # seconds that the server may take to make a stream of what it has read in
_AGAIN = "run the same `logbroker restore` again; nobody can write to what is there by now"
logger = logging.getLogger(__name__)


def adapt(
    archive: StreamArchive, there: Mapping[str, Mapping[str, Any]], now: datetime
) -> StreamArchive:
    """Return an archive with the configuration that its stream gets; `there` is STREAM.INFO by name.

    Replicas, storage and age are those of the stream that is there, which the broker declared: a restore is the way to another storage. An age
    by which all of it would expire at once is left out.
    """
    others = [info["config"]["num_replicas"] for info in there.values()]
    config = {**archive.config, **({"num_replicas": others[0]} if others else {})}
    if info := there.get(archive.stream):
        config |= {field: info["config"][field] for field in _OF_BROKER}
    age = timedelta(microseconds=config.get("max_age", 0) // 1000)
    last = archive.state.get("last_ts") if archive.state.get("messages") else None
    if age and last and datetime.fromisoformat(last) < now - age:
        logger.warning(
            "%s comes back without its max_age of %s, by which all of it would expire at once; "
            "`logbroker apply` sets it again",
            archive.stream,
            format_duration(age),
        )
        config["max_age"] = 0
    return archive.model_copy(update={"config": config})


def preview(
    archives: Sequence[StreamArchive], there: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return what a restore deletes, by stream; `there` is STREAM.INFO by name. Raises `OperatorError` where it would be of no use."""
    # the declaration of an empty broker is nothing that anybody would miss
    is_empty = not any(_holds(info) for name, info in there.items() if name != _CONFIG)
    deletes = {}
    for archive in archives:
        name, info, state = archive.stream, there.get(archive.stream), archive.state
        if info and _holds(info) and not (is_empty and name == _CONFIG):
            deletes[name] = format_content(info["state"])
        size, limit = int(state.get("bytes", 0)), _limit_of(info)
        if 0 <= limit < size:
            raise OperatorError(
                f"{name} takes {format_size(size)}, more than its limit of {format_size(limit)}; raise that by "
                "`logbroker apply --max-bytes`; nothing was changed"
            )
    return deletes


def _holds(info: Mapping[str, Any]) -> bool:
    return int(info["state"]["last_seq"]) > 0 and not is_closed(info["config"])


def format_content(state: Mapping[str, Any]) -> str:
    """Return for a person what a stream holds; `state` is the server's."""
    size = format_size(int(state["bytes"]))
    times = f", {state['first_ts'][:19]}Z to {state['last_ts'][:19]}Z" if state["messages"] else ""
    sequences = f"{state['first_seq']} to {state['last_seq']}"
    return f"{format_count(state['messages'], 'message')} ({size}), sequences {sequences}{times}"


def _limit_of(there: Mapping[str, Any] | None) -> int:
    """Return the limit in bytes of the stream that is there, which goes with the disk and stays; -1 for none, as while one is restored."""
    if there is None or is_being_restored(there["config"]):
        return -1
    return int(there["config"].get("max_bytes", -1))


async def find_streams(
    connection: Connection, streams: Iterable[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the descriptions of those streams that exist; raises `Rejected`, `ConnectionLost`."""
    infos = {name: await find_stream_info(connection, name) for name in streams}
    return {name: info for name, info in infos.items() if info is not None}


async def restore(connection: Connection, folder: Path, archives: Sequence[StreamArchive]) -> None:
    """Put the archives of a checked backup in the place of the streams that exist; raises `OperatorError`."""
    # lines first, so that they are opened last
    ordered = sorted(archives, key=lambda one: (one.stream == _CONFIG, one.stream in BUCKETS))
    there = await find_streams(connection, [archive.stream for archive in ordered])
    now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
    ordered = [adapt(one, there, now) for one in ordered]
    try:
        # a broker that is started meanwhile makes no stream, which shippers would fill, in the place of one that is to come
        if settings := await find_stream_info(connection, _CONFIG):
            await connection.api(
                f"STREAM.UPDATE.{_CONFIG}", mark_config(settings["config"]), _UPDATE
            )
        for archive in ordered:
            await _replace(connection, folder, archive)
        if _CONFIG not in {archive.stream for archive in ordered}:
            await _open(connection, _CONFIG, {})
        for archive in reversed(ordered):
            limit = {"max_bytes": _limit_of(there.get(archive.stream))}
            await _open(connection, archive.stream, limit, archive.config)
            await _complete(connection, archive)
    except Rejected as error:
        raise OperatorError(f"nats-server refuses: {error.description}; {_AGAIN}") from None
    except (ConnectionLost, OSError) as error:
        raise OperatorError(f"the restore was broken off: {error}; {_AGAIN}") from None
    except (SystemExit, asyncio.CancelledError):
        logger.warning("the restore was broken off; %s", _AGAIN)
        raise


async def _complete(connection: Connection, archive: StreamArchive) -> None:
    """Write those entries of a bucket that its archive has lost."""
    for subject, data in archive.replaced.items():
        try:
            await connection.ask(subject, b64decode(data), {EXPECTED_SEQUENCE: "0"})
        except Rejected as error:
            if not error.is_wrong_sequence:  # it is there
                raise


async def _replace(connection: Connection, folder: Path, archive: StreamArchive) -> None:
    """Put an archive in the place of its stream, closed.

    There is no limit in bytes, for which a server would set store aside: after a crash that would be in its own way.
    """
    config = {**archive.config, "max_bytes": -1}
    closed = close_config(config, Ancestor(archive.created, archive.until))
    try:
        await connection.api(f"STREAM.DELETE.{archive.stream}", patience=_UPDATE)
    except Rejected as error:
        if not error.is_absent:
            raise
    made = await _read_in(connection, closed, archive, folder / archive.file)
    if (last := int(made["state"]["last_seq"])) != archive.until - 1:
        raise OperatorError(
            f"stream {archive.stream} ends at sequence {last}, not at {archive.until - 1} as in the backup; {_AGAIN}"
        )


async def _read_in(
    connection: Connection, config: Mapping[str, Any], archive: StreamArchive, path: Path
) -> Mapping[str, Any]:
    """Make a stream of an archive, and return its description; raises `Rejected`, `ConnectionLost`: the server keeps a part then."""
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
                        _acknowledged(await connection.guard(answers.get(), PATIENCE, subject))
                        under_way -= 1
        await connection.publish(subject, b"", reply=inbox)
        return parse_answer((await connection.guard(answers.get(), _ACTIVATION)).data)


def _acknowledged(answer: RawMessage) -> None:
    """Return where a chunk was taken; raises `Rejected` for what the server says instead, and `ConnectionLost`."""
    if answer.data:
        parse_answer(answer.data)
        raise ConnectionLost("the server took the archive for finished before its end")
    if (answer.headers or {}).get("Status") == "503":
        raise ConnectionLost("the server has given the restore up")


async def _open(
    connection: Connection,
    stream: str,
    changes: Mapping[str, Any],
    archived: Mapping[str, Any] | None = None,
) -> None:
    """Open a stream that was closed or marked; again where servers of a cluster have not heard of it yet."""
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
