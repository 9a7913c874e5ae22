"""Restores a backup: closed to everybody while it is read in, opened when all of it is there.

What if we die here:
- before the first stream is deleted: nothing has happened;
- while archives are read in: a stream is gone, or holds a part under a subject that nobody publishes to; shippers wait,
  `logbroker apply` changes nothing since the bucket of settings is marked, and the same restore begins again without asking;
- while they are opened: the same; streams of lines come last, so nobody ships before offsets, positions and the number
  of partitions are back.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiofiles

from broker.app.exits import OperatorError
from broker.app.files import open_folder
from broker.app.progress import progress
from broker.app.units import format_size
from broker.backup.archives import BUCKETS
from broker.backup.directory import Archive
from broker.backup.preview import RestoreOptions, closed_config, limit_of
from broker.backup.transfer import described, read_in
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.descent import marked, opened

__all__ = ["present", "restore"]

_STREAM_NOT_FOUND = 10059
_NO_STORE = 10047
_MARKED = BUCKETS[2]
_PROBE = "logship-restore-probe"
_SETTLING = (0.1, 0.3, 1.0, 3.0)  # seconds; servers of a cluster learn of a stream by and by
_TRIES = 5
_PATIENCE = 60.0  # seconds for a change, which a busy disk holds up
_IN_THE_WAY = "failed to add consumer"
_AGAIN = "run the same `logbroker restore` again; nobody can write to what is there by now"
logger = logging.getLogger(__name__)


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
    closed = {one.stream: closed_config(one, options, there.get(one.stream)) for one in ordered}
    limits = {one.stream: limit_of(one, there.get(one.stream)) for one in ordered}
    await _measure(connection, ordered, limits, there)
    await _probe(connection, ordered, closed, there)
    try:
        await _mark(connection)
        for archive in ordered:
            await _replace(connection, folder, archive, closed[archive.stream])
        if _MARKED not in closed:
            await _open(connection, _MARKED, {})
        for archive in reversed(ordered):
            await _open(
                connection, archive.stream, {"max_bytes": limits[archive.stream]}, archive.config
            )
    except Rejected as error:
        raise OperatorError(f"nats-server refuses: {error.description}; {_AGAIN}") from None
    except (ConnectionLost, OSError) as error:
        raise OperatorError(f"the restore was broken off: {error}; {_AGAIN}") from None
    except (SystemExit, asyncio.CancelledError):
        logger.warning("the restore was broken off; %s", _AGAIN)
        raise


def _order(archive: Archive) -> int:
    """Return when an archive is read in: lines first, so that they are opened last."""
    return {_MARKED: 2}.get(archive.stream, int(archive.stream in BUCKETS))


async def _mark(connection: Connection) -> None:
    """Have a broker that is started meanwhile make no stream, which shippers would fill, in the place of one that is to come."""
    if info := await described(connection, _MARKED):
        await connection.api(f"STREAM.UPDATE.{_MARKED}", marked(info["config"]), _PATIENCE)


async def _probe(
    connection: Connection,
    archives: Sequence[Archive],
    closed: Mapping[str, dict[str, Any]],
    there: Mapping[str, Any],
) -> None:
    """Have the server refuse configurations before anything is deleted."""
    for archive in archives:
        config = closed[archive.stream]
        subjects = {"subjects": [f"logship.restoring.{_PROBE}"]} if "subjects" in config else {}
        try:
            await _delete(connection, _PROBE)
            probed = {**config, **subjects, "name": _PROBE}
            await connection.api(f"STREAM.CREATE.{_PROBE}", probed, _PATIENCE)
            await _delete(connection, _PROBE)
        except Rejected as error:
            if error.error == _NO_STORE and archive.stream in there:
                continue  # set aside for what is to be deleted; whether all fits was measured
            hint = " (try --replicas 1)" if "replicas" in error.description else ""
            raise OperatorError(
                f"nats-server refuses stream {archive.stream} as it was: {error.description}; nothing was changed{hint}"
            ) from None


async def _measure(
    connection: Connection,
    archives: Sequence[Archive],
    limits: Mapping[str, int],
    there: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuse what would not fit, which a server notices in the middle only."""
    for archive in archives:
        if 0 <= limits[archive.stream] < archive.bytes:
            raise OperatorError(
                f"{archive.stream} takes {format_size(archive.bytes)}, more than its limit of "
                f"{format_size(limits[archive.stream])}; raise that by `logbroker apply --max-bytes`; nothing was changed"
            )
    account = await connection.api("INFO")
    limit = account.get("limits", {}).get("max_storage", -1)
    freed = sum(int(info["state"]["bytes"]) for info in there.values())
    free = limit - int(account.get("storage", 0)) + freed
    needed = sum(archive.bytes for archive in archives)
    if limit >= 0 and free < needed:
        raise OperatorError(
            f"the backup takes {format_size(needed)} in the store, and {format_size(max(0, free))} are free; give the "
            "broker a larger --max-store; nothing was changed"
        )


async def _delete(connection: Connection, stream: str) -> None:
    try:
        await connection.api(f"STREAM.DELETE.{stream}", patience=_PATIENCE)
    except Rejected as error:
        if error.error != _STREAM_NOT_FOUND:
            raise


async def _replace(
    connection: Connection, folder: Path, archive: Archive, config: Mapping[str, Any]
) -> None:
    """Put an archive in the place of its stream; again where a consumer of it was in the way.

    A receiver that runs makes its own as soon as there is a stream, before nats-server comes to those of the backup.
    """
    for left in reversed(range(_TRIES)):
        await _delete(connection, archive.stream)
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
        async with aiofiles.open(opened.open(archive.file, os.O_RDONLY), "rb") as file:
            made = await read_in(connection, config, archive.state, file, advance)
    last = int(made["state"]["last_seq"])
    if last != archive.until - 1:
        raise OperatorError(
            f"stream {archive.stream} ends at sequence {last}, not at {archive.until - 1} as in the backup; {_AGAIN}"
        )


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
                await connection.api(f"STREAM.UPDATE.{stream}", config, _PATIENCE)
        except Rejected as error:
            if error.error == _NO_STORE and changes:
                logger.warning(
                    "stream %s has no limit in bytes now, as the one before is more than this store has; "
                    "`logbroker run` gives it one at its next start",
                    stream,
                )
                changes = {}
                continue
            if pause is None:
                raise
        else:
            return
        await asyncio.sleep(pause)
