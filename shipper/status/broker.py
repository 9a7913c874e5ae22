"""What the broker has of a host, for whoever asks while no agent runs; changes nothing."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.app.exits import OperatorError
from broker.client.bucket import read
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from shipper.agent import connection_for, reasons_for
from shipper.positions import Cursor, Positions, PositionsUnreadable
from shipper.publish.rebuild import ReadBack, rebuild
from shipper.settings import ShipperSettings
from shipper.status.report import FileReport, HostReport, rfc3339

__all__ = ["connected", "stored"]


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
        raise OperatorError(reasons_for(settings, host, connection)(error)) from None
    finally:
        await connection.close()


async def stored(settings: ShipperSettings, host: str) -> HostReport:
    """Return the positions of a host as the broker has them, beside the sizes of the files on this machine.

    Raises `OperatorError` where the broker has none, or does not tell.
    """
    try:
        async with connected(settings, host) as connection:
            return await _stored(connection, host)
    except OperatorError as error:
        raise type(error)(f"no agent of {host} runs here, and {error}") from None


async def _stored(connection: Connection, host: str) -> HostReport:
    entry = await read(connection, POSITIONS_BUCKET, positions_key(host))
    if entry is None:
        raise OperatorError("the broker has no positions of it; check --host")
    try:
        positions = await rebuild(ReadBack(connection, host), Positions.decode(entry.value))
    except PositionsUnreadable as error:
        raise OperatorError(
            f"the snapshot {POSITIONS_BUCKET}/{positions_key(host)} cannot be read: {error}; "
            "the next start of the shipper rebuilds it from the stream"
        ) from None
    files = tuple(map(_file, positions.files.values()))
    return HostReport(
        host, positions.agent, positions.sequence, running=False, files=files, saved=entry.time
    )


def _file(cursor: Cursor) -> FileReport:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # deleted, or not ours to see: the position is shown all the same
    return FileReport(
        path=cursor.path,
        file=cursor.file,
        state="gone" if size is None else "saved",
        reason="not running",
        size_bytes=size,
        position_bytes=cursor.offset,
        behind_bytes=None if size is None else max(0, size - cursor.offset),
        last_read=rfc3339(cursor.seen),
    )
