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
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiofiles
import nats.errors

from broker.app.exits import OperatorError
from broker.app.files import open_folder
from broker.app.progress import Advance, progress
from broker.app.units import format_duration, format_size
from broker.backup.archives import BUCKETS, CHUNK, PATIENCE, WINDOW, described
from broker.backup.directory import Archive
from broker.client.answer import answer_of
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected
from broker.wire.descent import Ancestor, is_being_restored, is_closed, marked, opened, restoring

__all__ = ["Preview", "RestoreOptions", "present", "preview", "restore"]

_STREAM_NOT_FOUND = 10059
_NO_STORE = 10047
_CONFIG = BUCKETS[2]
_SETTLING = (0.1, 0.3, 1.0, 3.0)  # seconds; servers of a cluster learn of a stream by and by
_TRIES = 5
_UPDATE = 60.0  # seconds for a change, which a busy disk holds up
_ACTIVATION = 600.0  # seconds that the server may take to make a stream of what it has read in
_IN_THE_WAY = "failed to add consumer"
_AGAIN = "run the same `logbroker restore` again; nobody can write to what is there by now"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What a restore changes of the archived configurations of lines; None leaves it as it was."""

    replicas: int | None = None
    max_age: timedelta | None = None

    def config_of(self, archive: Archive) -> dict[str, Any]:
        """Return the configuration of an archive, as it is to be."""
        config = dict(archive.config)
        if self.replicas is not None:
            config["num_replicas"] = self.replicas
        if self.max_age is not None and archive.stream not in BUCKETS:
            config["max_age"] = int(self.max_age.total_seconds()) * 1_000_000_000
        return config


@dataclass(frozen=True, slots=True)
class Preview:
    """Sentences for a person: what is deleted, by stream, what is to be known, and what speaks against it."""

    deletes: Mapping[str, str]
    notes: tuple[str, ...]
    refusals: tuple[str, ...]


def preview(
    archives: Sequence[Archive],
    there: Mapping[str, Mapping[str, Any]],
    options: RestoreOptions,
    now: datetime,
) -> Preview:
    """Judge a restore of these archives by the streams that are there (STREAM.INFO, by name)."""
    # the declaration of an empty broker is nothing that anybody would miss
    is_empty = not any(_holds(info) for name, info in there.items() if name != _CONFIG)
    deletes = {
        one.stream: _summary(there[one.stream]["state"])
        for one in archives
        if one.stream in there
        and _holds(there[one.stream])
        and not (is_empty and one.stream == _CONFIG)
    }
    notes: list[str] = []
    refusals: list[str] = []
    for archive in archives:
        age = timedelta(microseconds=options.config_of(archive).get("max_age", 0) // 1000)
        if age and archive.messages and archive.time("first_ts") < now - age:
            is_all = archive.time("last_ts") < now - age
            what = "everything in" if is_all else "a part of"
            (refusals if is_all else notes).append(
                f"{what} {archive.stream} is older than its max_age of {format_duration(age)} and expires at once; "
                "--max-age keeps it (give the same to `logbroker run`)"
            )
        if 0 <= (limit := _limit_of(archive, there.get(archive.stream))) < archive.bytes:
            refusals.append(
                f"{archive.stream} takes {format_size(archive.bytes)}, more than its limit of {format_size(limit)}; raise "
                "that by `logbroker apply --max-bytes`"
            )
    return Preview(deletes, tuple(notes), tuple(refusals))


def _holds(info: Mapping[str, Any]) -> bool:
    return int(info["state"]["last_seq"]) > 0 and not is_closed(info["config"])


def _summary(state: Mapping[str, Any]) -> str:
    return (
        f"{state['messages']} messages ({format_size(int(state['bytes']))}), sequences {state['first_seq']} to "
        f"{state['last_seq']}, {state['first_ts'][:19]}Z to {state['last_ts'][:19]}Z"
    )


def _limit_of(archive: Archive, there: Mapping[str, Any] | None) -> int:
    """Return the limit in bytes of a restored stream, -1 for none: that of the stream that is there, since it goes with the disk.

    A stream that is being restored has no limit of its own; then that of the archive counts.
    """
    if there is not None and not is_being_restored(there["config"]):
        return int(there["config"].get("max_bytes", -1))
    return int(archive.config.get("max_bytes", -1))


async def present(connection: Connection, streams: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the descriptions of those streams that exist; raises `Rejected`, `ConnectionLost`."""
    infos = {name: await described(connection, name) for name in streams}
    return {name: info for name, info in infos.items() if info is not None}


async def restore(
    connection: Connection, folder: Path, archives: Sequence[Archive], options: RestoreOptions
) -> None:
    """Put the archives of a checked backup in the place of the streams that exist; raises `OperatorError`."""
    ordered = sorted(archives, key=_order)
    there = await present(connection, [archive.stream for archive in ordered])
    try:
        # a broker that is started meanwhile makes no stream, which shippers would fill, in the place of one that is to come
        if settings := await described(connection, _CONFIG):
            await connection.api(f"STREAM.UPDATE.{_CONFIG}", marked(settings["config"]), _UPDATE)
        for archive in ordered:
            config = _closed_config(archive, options, there.get(archive.stream))
            await _replace(connection, folder, archive, config)
        if _CONFIG not in {archive.stream for archive in ordered}:
            await _open(connection, _CONFIG, {})
        for archive in reversed(ordered):
            limit = {"max_bytes": _limit_of(archive, there.get(archive.stream))}
            await _open(connection, archive.stream, limit, archive.config)
    except Rejected as error:
        hint = " (with --replicas 1)" if "replicas" in error.description else ""
        raise OperatorError(f"nats-server refuses: {error.description}; {_AGAIN}{hint}") from None
    except (ConnectionLost, OSError) as error:
        raise OperatorError(f"the restore was broken off: {error}; {_AGAIN}") from None
    except (SystemExit, asyncio.CancelledError):
        logger.warning("the restore was broken off; %s", _AGAIN)
        raise


def _order(archive: Archive) -> int:
    """Return when an archive is read in: lines first, so that they are opened last."""
    return {_CONFIG: 2}.get(archive.stream, int(archive.stream in BUCKETS))


def _closed_config(
    archive: Archive, options: RestoreOptions, there: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the configuration under which an archive is read in: nobody can publish to it yet.

    The storage is that of the stream that is `there`: a restore is the way from one storage to the other. There is no limit
    in bytes, for which a server would set store aside: after a crash that would be in its own way.
    """
    config = options.config_of(archive) | {"max_bytes": -1}
    if there is not None:
        config["storage"] = there["config"].get("storage", "file")
    return restoring(config, Ancestor(archive.created, archive.until))


async def _replace(
    connection: Connection, folder: Path, archive: Archive, config: Mapping[str, Any]
) -> None:
    """Put an archive in the place of its stream; again where a consumer of it was in the way.

    A receiver that runs makes its own as soon as there is a stream, before nats-server comes to those of the backup.
    """
    for left in reversed(range(_TRIES)):
        try:
            await connection.api(f"STREAM.DELETE.{archive.stream}", patience=_UPDATE)
        except Rejected as error:
            if error.error != _STREAM_NOT_FOUND:
                raise
        try:
            await _fill(connection, folder, archive, config)
        except Rejected as error:
            if not left or _IN_THE_WAY not in error.description:
                raise
        else:
            return


async def _fill(
    connection: Connection, folder: Path, archive: Archive, config: Mapping[str, Any]
) -> None:
    with (
        open_folder(folder) as opened,
        progress(f"restoring {archive.stream}", archive.size) as advance,
    ):
        descriptor = opened.open(archive.file, os.O_RDONLY)
        made = await _read_in(connection, config, archive, descriptor, advance)
    last = int(made["state"]["last_seq"])
    if last != archive.until - 1:
        raise OperatorError(
            f"stream {archive.stream} ends at sequence {last}, not at {archive.until - 1} as in the backup; {_AGAIN}"
        )


async def _read_in(
    connection: Connection,
    config: Mapping[str, Any],
    archive: Archive,
    descriptor: int,
    advance: Advance,
) -> Mapping[str, Any]:
    """Make a stream of an archive, and return its description; the server acknowledges chunk by chunk.

    Raises `Rejected` and `ConnectionLost`; the server then has a part of the stream, and keeps that.
    """
    answers: asyncio.Queue[RawMessage] = asyncio.Queue()
    async with aiofiles.open(descriptor, "rb") as file:
        client = await connection.once()
        body = {"config": config, "state": archive.state}
        begun = await connection.api(f"STREAM.RESTORE.{config['name']}", body, patience=PATIENCE)
        chunk, subject = min(CHUNK, client.max_payload), begun["deliver_subject"]
        inbox = connection.new_inbox()
        subscription = await connection.tap(inbox, answers.put_nowait)
        try:
            sizes: list[int] = []
            while (data := await file.read(chunk)) or sizes:
                if data:
                    await connection.publish(subject, data, reply=inbox)
                    sizes.append(len(data))
                if not data or len(sizes) >= max(1, WINDOW // chunk):
                    _acknowledged(await connection.guard(answers.get(), PATIENCE, subject))
                    advance(sizes.pop(0))
            await connection.publish(subject, b"", reply=inbox)
            return answer_of((await connection.guard(answers.get(), _ACTIVATION)).data)
        finally:
            with suppress(nats.errors.Error):  # gone with its client
                await subscription.unsubscribe()


def _acknowledged(answer: RawMessage) -> None:
    """Return where a chunk was taken; raises `Rejected` for what the server says instead, and `ConnectionLost`."""
    if answer.data:
        answer_of(answer.data)
        raise ConnectionLost("the server took the archive for finished before its end")
    if (answer.headers or {}).get("Status") == "503":
        raise ConnectionLost("the server has given the restore up")


async def _open(
    connection: Connection,
    stream: str,
    changes: Mapping[str, Any],
    archived: Mapping[str, Any] | None = None,
) -> None:
    for pause in (*_SETTLING, None):
        try:
            if info := await described(connection, stream):
                config = {**opened(info["config"], archived or info["config"]), **changes}
                await connection.api(f"STREAM.UPDATE.{stream}", config, _UPDATE)
        except Rejected as error:
            if error.error == _NO_STORE and changes:
                logger.warning(
                    "stream %s has no limit in bytes, as its own is more than this store has; `logbroker run` gives it one",
                    stream,
                )
                changes = {}
                continue
            if pause is None:
                raise
        else:
            return
        await asyncio.sleep(pause)
