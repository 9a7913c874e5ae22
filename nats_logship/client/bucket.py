"""Reads and writes entries of a key-value bucket, by compare-and-set (ADR-8), with least rights."""

import asyncio
from dataclasses import dataclass
from typing import Any

from nats_logship.app.timestamps import format_time
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_last
from nats_logship.wire.message import EXPECTED_SEQUENCE

_TRIES, _NEXT_TRY = 100, 0.01  # seconds


class Conflict(Exception):
    """Somebody else has written the key since it was read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value and its revision, a sequence of the bucket's stream.

    `time` is when the broker stored it, RFC 3339.
    """

    value: bytes
    revision: int
    time: str = ""
    is_deletion: bool = False


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none.

    A server that lags may answer: `write` by the revision before an action that cannot be undone.
    Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    found = await read_newest(connection, bucket, key)
    return None if found.is_deletion else found


async def write(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write a key whose newest revision is `revision`, and return the new one.

    0 is the revision of a key that does not exist. Raises `Conflict` if the revision is another
    one. After `ConnectionLost` the caller must read before it writes again.
    """
    try:
        return int((await send_write(connection, bucket, key, value, revision))["seq"])
    except Rejected as error:
        if not error.is_conflict:
            raise
    if not revision:
        found = await read_newest(connection, bucket, key)
        if found.is_deletion and found.revision:
            return await write(connection, bucket, key, value, found.revision)  # over the deletion
    raise Conflict(f"{bucket}/{key} is no longer at revision {revision}")


async def send_write(
    connection: Connection, bucket: str, key: str, value: bytes, revision: int
) -> dict[str, Any]:
    """Send a write, and send it again for a second while the broker is busy with other writes.

    A refused write stores nothing. Raises `Rejected`, `ConnectionLost`.
    """
    headers = {EXPECTED_SEQUENCE: str(revision)}
    for _ in range(_TRIES):
        try:
            return await connection.ask(f"$KV.{bucket}.{key}", value, headers)
        except Rejected as error:
            if not (error.is_write_under_way or error.is_busy):
                raise
        await asyncio.sleep(_NEXT_TRY)
    return await connection.ask(f"$KV.{bucket}.{key}", value, headers)


async def read_newest(connection: Connection, bucket: str, key: str) -> Entry:
    """Return the newest entry of a key, also a deletion; revision 0 when there is none.

    Raises as `read`.
    """
    found = await find_last(connection, f"KV_{bucket}", f"$KV.{bucket}.{key}")
    if found is None:
        return Entry(b"", 0, is_deletion=True)
    return Entry(
        value=found.payload,
        revision=found.sequence,
        time=format_time(found.stored_at, "nanoseconds"),
        is_deletion=found.headers.get("KV-Operation") in {"DEL", "PURGE"},
    )
