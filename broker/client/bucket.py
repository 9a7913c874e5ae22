"""Entries of a key-value bucket: read, and written by compare-and-set (ADR-8), with the least rights that this takes."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection, Message
from broker.wire.message import EXPECTED_SEQUENCE, NEVER

_TRIES, _NEXT_TRY = 100, 0.01  # seconds
_LAST = re.compile(r"wrong last sequence: ([0-9]+)")
_NO_MESSAGE = "404"


class Conflict(Exception):
    """Somebody else wrote the key since it was read."""


class Behind(ConnectionLost):
    """What was read is not the newest: a replica has answered that lags. To be read again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value with its revision (a sequence of the bucket's stream); `time` is when the broker stored it, RFC 3339."""

    value: bytes
    revision: int
    time: str = ""
    is_deletion: bool = False


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none; of several servers one may answer that lags.

    So `write` by the revision, or `confirm`, before anything is concluded that cannot be taken back. Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    found = await newest(connection, bucket, key)
    return None if found.is_deletion else found


async def confirm(connection: Connection, bucket: str, key: str, entry: Entry | None) -> None:
    """Return when `entry` is the newest of its key as the leader has it (None: there is none); raises `Behind` if not.

    Asks by a write that is always refused, since a refusal comes from the leader and names the last revision; whoever
    may write the key may ask. Raises `Rejected`, `ConnectionLost`.
    """
    named = None
    try:
        await _ask(connection, bucket, key, b"", NEVER)
    except Rejected as error:
        if not error.is_conflict:
            raise
        named = _LAST.search(error.description)
    last = int(named[1]) if named else -1
    if entry is None and last > 0:
        found = await newest(connection, bucket, key)
        last = 0 if found.is_deletion and found.revision == last else last
    if last != (entry.revision if entry else 0):
        raise Behind(f"a replica lags behind with {bucket}/{key}, or it is being written")


async def write(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write a key whose newest revision is `revision` (0: it must not exist) and return the new revision.

    Raises `Conflict` when it is another by now. After `ConnectionLost` the caller must read before it writes again.
    """
    try:
        return int((await _ask(connection, bucket, key, value, revision))["seq"])
    except Rejected as error:
        if not error.is_conflict:
            raise
    if not revision:
        found = await newest(connection, bucket, key)
        if found.is_deletion and found.revision:
            return await write(connection, bucket, key, value, found.revision)  # over the marker
    raise Conflict(f"{bucket}/{key} is no longer at revision {revision}")


async def _ask(
    connection: Connection, bucket: str, key: str, value: bytes, revision: int
) -> dict[str, Any]:
    """Send a write, and again for a second while another one is under way: then nothing of it was stored."""
    headers = {EXPECTED_SEQUENCE: str(revision)}
    for _ in range(_TRIES):
        try:
            return await connection.ask(f"$KV.{bucket}.{key}", value, headers)
        except Rejected as error:
            if not error.is_write_under_way:
                raise
        await asyncio.sleep(_NEXT_TRY)
    return await connection.ask(f"$KV.{bucket}.{key}", value, headers)


async def newest(connection: Connection, bucket: str, key: str) -> Entry:
    """Return the newest entry of a key, a deletion among them; one of revision 0 where there is none. Raises as `read`."""
    answer: Message = await connection.request(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}")
    headers = answer.headers or {}
    if headers.get("Status", _NO_MESSAGE) != _NO_MESSAGE:
        raise ConnectionLost(f"an answer that is no entry: {headers}")
    is_gone = "Status" in headers or headers.get("KV-Operation") in {"DEL", "PURGE"}
    revision, time = int(headers.get("Nats-Sequence", 0)), headers.get("Nats-Time-Stamp", "")
    return Entry(answer.data, revision, time, is_gone)
