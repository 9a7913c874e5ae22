"""Pulls of a receiver of partition 0, without a receiver: 16 MiB at a time through the durable consumer, each acknowledged."""

import asyncio
import json

from broker.client.connection import Arrived, Connection, ConnectionLost
from broker.wire.streams import STREAM
from broker.wire.subjects import consumer_name

__all__ = ["pull"]

_PULL = 16 * 1024 * 1024
_MESSAGES = 8192
_PATIENCE = 60.0  # seconds for a pull
_CONSUMER = consumer_name(0)


async def pull(connection: Connection, count: int) -> int:
    """Pull `count` messages that are there and return the bytes of their payloads.

    Raises `ConnectionLost` when there are fewer.
    """
    await connection.api(f"CONSUMER.INFO.{STREAM}.{_CONSUMER}")
    subject = connection.api_now(f"CONSUMER.MSG.NEXT.{STREAM}.{_CONSUMER}")
    inbox, last, taken, size = connection.new_inbox(), "", 0, 0
    ended = asyncio.Event()

    def take(message: Arrived) -> None:
        nonlocal last, taken, size
        if message.reply:
            last, taken, size = message.reply, taken + 1, size + len(message.data)
        else:
            ended.set()

    await connection.tap(f"{inbox}.*", take)
    pulls = 0
    while taken < count:
        pulls, before = pulls + 1, taken
        ended.clear()
        request = {"batch": _MESSAGES, "max_bytes": _PULL, "no_wait": True}
        await connection.publish(subject, json.dumps(request).encode(), f"{inbox}.{pulls}")
        await connection.guard(ended.wait(), _PATIENCE)
        if taken == before:
            raise ConnectionLost(f"{taken} messages where {count} were published")
        await connection.publish(last, b"+ACK")
    return size
