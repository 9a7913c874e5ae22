"""When messages were read at their host, and when the stream stored them."""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime

from broker.client.connection import Connection
from broker.wire.message import decode_origin
from broker.wire.streams import STREAM

__all__ = ["StoredMessage", "read_delays"]

_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of the stream; times in nanoseconds since the epoch."""

    read_at: int
    stored_at: int


def read_delays(url: str, first: int, until: int) -> list[StoredMessage]:
    """Return the messages with sequences in `[first, until)`; claims and foreign messages are passed over."""
    return asyncio.run(_read(url, first, until))


async def _read(url: str, first: int, until: int) -> list[StoredMessage]:
    connection = Connection([url], "bench")
    found: list[StoredMessage | None] = []
    try:
        for at in range(first, until, _AT_ONCE):
            numbers = range(at, min(at + _AT_ONCE, until))
            found += await asyncio.gather(*(_message(connection, number) for number in numbers))
    finally:
        await connection.close()
    return [message for message in found if message is not None]


async def _message(connection: Connection, sequence: int) -> StoredMessage | None:
    question = json.dumps({"seq": sequence}).encode()
    answer = await connection.call(f"DIRECT.GET.{STREAM}", question)
    headers = answer.headers or {}
    origin = decode_origin(headers)
    if origin is None or origin.is_claim:
        return None
    return StoredMessage(origin.read_at, _nanoseconds(headers["Nats-Time-Stamp"]))


def _nanoseconds(text: str) -> int:
    """Read RFC 3339 with up to nine decimals, of which datetime takes six."""
    whole, _, decimals = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
    return seconds * 1_000_000_000 + int(decimals.ljust(9, "0") or 0)
