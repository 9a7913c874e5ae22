"""Entries of a key-value bucket: read, and written by compare-and-set (ADR-8), with the least rights that this takes."""

import asyncio
import base64
import re
from dataclasses import dataclass
from typing import Any

from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.wire.message import EXPECTED_SEQUENCE

__all__ = ["Behind", "Conflict", "Entry", "confirm", "history", "read", "write"]

_TRIES, _NEXT_TRY = 100, 0.01  # seconds
_NEVER = 2**62  # a revision that no key comes to
_LAST = re.compile(r"wrong last sequence: ([0-9]+)")
_NO_MESSAGE = "404"
_NO_MESSAGE_FOUND = 10037


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


async def history(connection: Connection, bucket: str, key: str) -> list[Entry]:
    """Return the revisions of a key that the bucket still has, oldest first; raises `Rejected`, `ConnectionLost`."""
    found: list[Entry] = []
    while True:
        begin = found[-1].revision + 1 if found else 1
        try:
            answer = await connection.api(
                f"STREAM.MSG.GET.KV_{bucket}",
                {"seq": begin, "next_by_subj": f"$KV.{bucket}.{key}"},
            )
        except Rejected as error:
            if error.error == _NO_MESSAGE_FOUND:
                return found
            raise
        message = answer["message"]
        value = base64.b64decode(message.get("data", ""))
        is_deletion = b"KV-Operation:" in base64.b64decode(message.get("hdrs", ""))
        found.append(Entry(value, int(message["seq"]), message["time"], is_deletion))


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none; of several servers one may answer that lags.

    So `write` by the revision, or `confirm`, before anything is concluded that cannot be taken back. Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    answer = await _newest(connection, bucket, key)
    if _is_gone(answer):
        return None
    time = (answer.headers or {}).get("Nats-Time-Stamp", "")
    return Entry(answer.data, _revision(answer), time)


async def confirm(connection: Connection, bucket: str, key: str, entry: Entry | None) -> None:
    """Return when `entry` is the newest of its key as the leader has it (None: there is none); raises `Behind` if not.

    Asks by a write that is always refused, since a refusal comes from the leader and names the last revision; whoever
    may write the key may ask. Raises `Rejected`, `ConnectionLost`.
    """
    last = await _last(connection, bucket, key)
    if entry is not None or not last:
        is_newest = last == (entry.revision if entry else 0)
    else:
        answer = await _newest(connection, bucket, key)
        is_newest = _is_gone(answer) and _revision(answer) == last
    if not is_newest:
        raise Behind(f"a replica lags behind with {bucket}/{key}")


async def _last(connection: Connection, bucket: str, key: str) -> int:
    try:
        await _ask(connection, bucket, key, b"", _NEVER)
    except Rejected as error:
        if found := _LAST.search(error.description):
            return int(found[1])
        if error.is_wrong_sequence or error.is_write_under_way:
            raise Behind(f"{bucket}/{key} is being written") from None
        raise
    raise ConnectionLost("a write that cannot be was answered as if it were")


async def write(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write a key whose newest revision is `revision` (0: it must not exist) and return the new revision.

    Raises `Conflict` when it is another by now. After `ConnectionLost` the caller must read before it writes again.
    """
    try:
        return await _put(connection, bucket, key, value, revision)
    except Conflict:
        answer = await _newest(connection, bucket, key)
        if revision or not _is_gone(answer) or not _revision(answer):
            raise
        return await _put(
            connection, bucket, key, value, _revision(answer)
        )  # over the marker of a deletion


async def _put(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    try:
        answer = await _ask(connection, bucket, key, value, revision)
    except Rejected as error:
        if error.is_wrong_sequence or error.is_write_under_way:
            raise Conflict(f"{bucket}/{key} is no longer at revision {revision}") from None
        raise
    return int(answer["seq"])


async def _ask(
    connection: Connection, bucket: str, key: str, value: bytes, revision: int
) -> dict[str, Any]:
    """Send a write, and again for a second while another one is under way: then nothing of it was stored."""
    headers = {EXPECTED_SEQUENCE: str(revision)}
    for _ in range(_TRIES - 1):
        try:
            return await connection.ask(f"$KV.{bucket}.{key}", value, headers)
        except Rejected as error:
            if not error.is_write_under_way:
                raise
        await asyncio.sleep(_NEXT_TRY)
    return await connection.ask(f"$KV.{bucket}.{key}", value, headers)


async def _newest(connection: Connection, bucket: str, key: str) -> Message:
    return await connection.call(f"DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}")


def _is_gone(answer: Message) -> bool:
    headers = answer.headers or {}
    return headers.get("Status") == _NO_MESSAGE or headers.get("KV-Operation") in {"DEL", "PURGE"}


def _revision(answer: Message) -> int:
    return int((answer.headers or {}).get("Nats-Sequence", 0))
