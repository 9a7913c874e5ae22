"""`logshipper status`: the positions that the broker has of a host while no agent runs, and reports as a table."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from rich.console import RenderableType

from broker.app.exits import OperatorError
from broker.app.table import table
from broker.app.units import format_duration, format_size
from broker.client.bucket import read
from broker.client.config import read_streams
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.positions import Cursor, Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key, stream_names
from shipper.publish.messages import HostMessages
from shipper.session import connection_for, reasons_for
from shipper.settings import ShipperSettings
from shipper.status.report import FileStatus, HostReport

__all__ = ["connected", "shown", "stored"]

_HEADS = ("size", "position", "behind", "waits", "state", "path")


@asynccontextmanager
async def connected(settings: ShipperSettings, host: str) -> AsyncIterator[Connection]:
    """Connect once; whatever the broker answers or does not answer is an `OperatorError`."""
    connection = connection_for(settings, host)
    try:
        await connection.once()
        yield connection
    except ConnectionLost as error:
        raise OperatorError(f"the broker at {connection.servers} did not answer: {error}") from None
    except Rejected as error:
        raise OperatorError(reasons_for(settings, host)(error)) from None
    finally:
        await connection.close()


async def stored(settings: ShipperSettings, host: str) -> HostReport:
    """Return the positions of a host as the broker has them, beside the sizes of the files on this machine.

    Raises `OperatorError` where the broker has none, or does not tell.
    """
    try:
        async with connected(settings, host) as connection:
            entry = await read(connection, POSITIONS_BUCKET, positions_key(host))
            saved = Positions.decode(entry.value) if entry else Positions()
            streams = await read_streams(connection)
            messages = HostMessages(connection, host, streams)
            found = (await messages.rebuild(saved, stream_names(streams))).positions
    except (OperatorError, PositionsUnreadable) as error:
        unread = "its snapshot cannot be read: " if isinstance(error, PositionsUnreadable) else ""
        raise OperatorError(f"no agent of {host} runs here, and {unread}{error}") from None
    if entry is None and not found.files:
        raise OperatorError(
            f"no agent of {host} runs here, and the broker has no positions of it; check --host"
        )
    files = tuple(map(_file, found.files.values()))
    saved_at = entry.time if entry else None
    return HostReport(host=host, running=False, files=files, saved=saved_at)


def _file(cursor: Cursor) -> FileStatus:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # deleted, or not ours to see: the position is shown all the same
    return FileStatus(
        path=cursor.path,
        state="gone" if size is None else "saved",
        size_bytes=size,
        position_bytes=cursor.offset,
        behind_bytes=None if size is None else max(0, size - cursor.offset),
    )


def shown(host: HostReport) -> list[RenderableType]:
    """Return a report as lines and a table, the files that are furthest behind first."""
    files = sorted(host.files, key=lambda file: (-(file.behind_bytes or 0), file.path))
    head = f"host {host.host}: not running, saved {host.saved or 'never'}; {host.summary}"
    if host.running:
        since = f"up since {host.up_since}, last ack {host.last_ack or 'none yet'}"
        head = f"host {host.host}: running, pid {host.pid}, {since}; {host.summary}"
    unhealthy = f"unhealthy: {host.unhealthy}" if host.unhealthy else ""
    return [
        *filter(None, (head, host.paused, unhealthy)),
        table(_HEADS, list(map(_row, files)), left=(4, 5)),
        *(f"not followed: {trouble}" for trouble in host.troubles),
    ]


def _row(file: FileStatus) -> tuple[str, ...]:
    waits = file.oldest_unshipped_seconds
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        "-" if waits is None else format_duration(timedelta(seconds=round(waits))),
        file.state,
        file.path,
    )
