"""Reads the headers of messages, without their lines, through a throw-away consumer."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import nats.errors

from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected
from broker.wire.delivery import Delivery, parse

__all__ = ["LAST_OF_EACH", "Head", "read_headers"]

LAST_OF_EACH: Mapping[str, Any] = {"deliver_policy": "last_per_subject"}
"""Read the last message of each subject only."""

_PAGE = 1000  # messages
_PATIENCE = 30.0  # seconds for a message, for which the server may have to read some hundred MB


class Head(NamedTuple):
    """A message's sequence, subject and headers."""

    sequence: int
    subject: str
    headers: Mapping[str, str]


async def read_headers(
    connection: Connection, stream: str, start: Mapping[str, Any], filters: Sequence[str]
) -> AsyncGenerator[Head, None]:
    """Yield the messages of some subjects from a place on, oldest first, to be closed by the caller (`aclosing`).

    `start` is a consumer's `deliver_policy` with what belongs to it. Raises `Rejected`, and `ConnectionLost` also where one
    was lost on its way.
    """
    config = {
        **start,
        "filter_subjects": list(filters),
        "ack_policy": "none",
        "headers_only": True,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 60_000_000_000,
    }
    made = await connection.api(
        f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}, _PATIENCE
    )
    consumer, number, pending = made["name"], 0, int(made["num_pending"])
    try:
        while pending:
            for delivery, message in await _page(connection, f"{stream}.{consumer}"):
                number, pending = number + 1, delivery.pending
                if delivery.number != number:
                    raise ConnectionLost("a message was lost on its way")
                yield Head(delivery.sequence, message.subject, message.headers or {})
    finally:
        with suppress(ConnectionLost, Rejected):  # that's fine: it ends by itself
            await connection.api(f"CONSUMER.DELETE.{stream}.{consumer}")


async def _page(connection: Connection, consumer: str) -> list[tuple[Delivery, RawMessage]]:
    """Return the next messages of a consumer; raises `ConnectionLost` where there are none, though some were pending."""
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    inbox, subject = connection.new_inbox(), connection.api_now(f"CONSUMER.MSG.NEXT.{consumer}")
    subscription = await connection.tap(inbox, arrived.put_nowait)
    page: list[tuple[Delivery, RawMessage]] = []
    try:
        await connection.publish(subject, b'{"batch":%d,"no_wait":true}' % _PAGE, reply=inbox)
        while len(page) < _PAGE and (not page or page[-1][0].pending):
            message = await connection.guard(arrived.get(), _PATIENCE, subject)
            delivery = parse(message.reply)
            if delivery is None:
                break
            page.append((delivery, message))
    finally:
        with suppress(nats.errors.Error):  # gone with its client
            await subscription.unsubscribe()
    if not page:
        raise ConnectionLost("the messages that were pending went meanwhile")
    return page
