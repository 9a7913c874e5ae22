"""Entries of a key-value bucket: read, and written by compare-and-set (ADR-8), with the least rights that this takes."""

import base64
from dataclasses import dataclass

from broker.connecting.connection import Connection, Message, Rejected

__all__ = ["Conflict", "Entry", "Revision", "history", "read", "write"]

_WRONG_LAST_SEQUENCE = 10071
_NO_MESSAGE = "404"
_NO_MESSAGE_FOUND = 10037


class Conflict(Exception):
    """Somebody else wrote the key since it was read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value with its revision (a sequence of the bucket's stream)."""

    value: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class Revision:
    """A value that a key has or had; `time` is the broker's, RFC 3339. A deletion has no value."""

    value: bytes
    revision: int
    time: str


async def history(connection: Connection, bucket: str, key: str) -> list[Revision]:
    """Return the revisions of a key that the bucket still has, oldest first; raises `Rejected`, `ConnectionLost`."""
    found: list[Revision] = []
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
        found.append(Revision(value, int(message["seq"]), message["time"]))


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none.

    Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    answer = await _newest(connection, bucket, key)
    return None if _is_gone(answer) else Entry(answer.data, _revision(answer))


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
    headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
    try:
        answer = await connection.ask(f"$KV.{bucket}.{key}", value, headers)
    except Rejected as error:
        if error.error == _WRONG_LAST_SEQUENCE:
            raise Conflict(f"{bucket}/{key} is no longer at revision {revision}") from None
        raise
    return int(answer["seq"])


async def _newest(connection: Connection, bucket: str, key: str) -> Message:
    return await connection.call(f"DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}")


def _is_gone(answer: Message) -> bool:
    headers = answer.headers or {}
    return headers.get("Status") == _NO_MESSAGE or headers.get("KV-Operation") in {"DEL", "PURGE"}


def _revision(answer: Message) -> int:
    return int((answer.headers or {}).get("Nats-Sequence", 0))
