"""Entries of a key-value bucket: read, and written by compare-and-set (ADR-8), with the least rights that this takes."""

import asyncio
from dataclasses import dataclass
from typing import Any

from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.message import EXPECTED_SEQUENCE

_TRIES, _NEXT_TRY = 100, 0.01  # seconds
_NO_MESSAGE = "404"


class Conflict(Exception):
    """Somebody else wrote the key since it was read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value with its revision (a sequence of the bucket's stream); `time` is when the broker stored it, RFC 3339."""

    value: bytes
    revision: int
    time: str = ""
    is_deletion: bool = False


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none; of several servers one may answer that lags.

    So `write` by the revision before anything is concluded that cannot be taken back. Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    found = await read_newest(connection, bucket, key)
    return None if found.is_deletion else found


async def write(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write a key whose newest revision is `revision` (0: it must not exist) and return the new revision.

    Raises `Conflict` when it is another by now. After `ConnectionLost` the caller must read before it writes again.
    """
    try:
        return int((await send_write(connection, bucket, key, value, revision))["seq"])
    except Rejected as error:
        if not error.is_conflict:
            raise
    if not revision:
        found = await read_newest(connection, bucket, key)
        if found.is_deletion and found.revision:
            return await write(connection, bucket, key, value, found.revision)  # over the marker
    raise Conflict(f"{bucket}/{key} is no longer at revision {revision}")


async def send_write(
    connection: Connection, bucket: str, key: str, value: bytes, revision: int
) -> dict[str, Any]:
    """Send a write, and again for a second while another one is under way, or too many wait.

    Nothing of it was stored then. Raises `Rejected`, `ConnectionLost`.
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
    """Return the newest entry of a key, a deletion among them; one of revision 0 where there is none. Raises as `read`."""
    answer: Message = await connection.request(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}")
    headers = answer.headers or {}
    if headers.get("Status", _NO_MESSAGE) != _NO_MESSAGE:
        raise ConnectionLost(f"an answer that is no entry: {headers}")
    is_gone = "Status" in headers or headers.get("KV-Operation") in {"DEL", "PURGE"}
    revision, time = int(headers.get("Nats-Sequence", 0)), headers.get("Nats-Time-Stamp", "")
    return Entry(answer.data, revision, time, is_gone)
