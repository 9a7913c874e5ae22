"""Entries of a key-value bucket: read, and written by compare-and-set (ADR-8), with the least rights that this takes."""

from dataclasses import dataclass

from broker.connection import Connection, Rejected

__all__ = ["Conflict", "Entry", "read", "write"]

_WRONG_LAST_SEQUENCE = 10071
_NO_MESSAGE = "404"


class Conflict(Exception):
    """Somebody else wrote the key since it was read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value with its revision (a sequence of the bucket's stream)."""

    value: bytes
    revision: int


async def read(connection: Connection, bucket: str, key: str) -> Entry | None:
    """Return the newest value of a key, None when there is none.

    Raises `Rejected` when there is no such bucket, `ConnectionLost`.
    """
    answer = await connection.request(f"$JS.API.DIRECT.GET.KV_{bucket}.$KV.{bucket}.{key}")
    headers = answer.headers or {}
    if headers.get("Status") == _NO_MESSAGE or headers.get("KV-Operation") in {"DEL", "PURGE"}:
        return None
    return Entry(answer.data, int(headers["Nats-Sequence"]))


async def write(connection: Connection, bucket: str, key: str, value: bytes, revision: int) -> int:
    """Write a key whose newest revision is `revision` (0: it must not exist) and return the new revision.

    Raises `Conflict` when it is another by now. After `ConnectionLost` the caller must read before it writes again.
    """
    headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
    try:
        answer = await connection.ask(f"$KV.{bucket}.{key}", value, headers)
    except Rejected as error:
        if error.error == _WRONG_LAST_SEQUENCE:
            raise Conflict(f"{bucket}/{key} is no longer at revision {revision}") from None
        raise
    return int(answer["seq"])
