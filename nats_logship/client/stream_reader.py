"""Reads a stream through a pull consumer: creates it, pulls, verifies each delivery, resets it.

    reader = StreamReader(connection, "LOGS", name, ("logs.p0.>",))
    await reader.create(at_sequence(1))
    pulled = await reader.pull(2000)
    reader.verify(pulled.messages)
    await reader.delete()

The server numbers the deliveries of a consumer from 1. The messages are complete and in order while
these numbers have no gap and the sequences ascend; `verify` raises `OutOfOrder` otherwise. After a
loss the position of the consumer is unknown. Create it again `at_sequence(next_sequence)`.

Callers decide what depends on their rights and promises: the consumer's name, acknowledgements, and
when to try again. `ranges` reads without a consumer, `find` reads single messages.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from nats_logship.app.timestamps import SECOND, format_time
from nats_logship.client import pulling
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.pulling import Deliver, Pulled, PullLimits
from nats_logship.wire.delivery import Delivery, RawMessage

Start = Mapping[str, Any]
"""Where a consumer begins, as its configuration says it."""
LAST_PER_SUBJECT: Start = {"deliver_policy": "last_per_subject"}
"""Begin with the last message of every subject, in stream order, and go on with new messages."""
Messages = Sequence[tuple[Delivery, RawMessage]]
"""Delivered messages in stream order."""

_PATIENCE = 8.0  # seconds: the server of the consumer may have died
_SHORT = 1.0  # seconds for a deletion, which a server that died never answers
_ATTEMPTS = 3  # to create a consumer whose name is in use
_NAME_IN_USE = {
    ErrorCode.CONSUMER_NAME_EXIST,  # also: is about to be deleted
    ErrorCode.CONSUMER_EXISTING_ACTIVE,
    ErrorCode.CONSUMER_ALREADY_EXISTS,
}


class NameInUse(Exception):
    """Another consumer of the stream has the name."""


class OutOfOrder(ConnectionLost):
    """A delivery is not the next one: messages were lost, or somebody else uses the consumer."""


def at_sequence(sequence: int) -> Start:
    """Begin with the first message at `sequence` or behind it."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, sequence)}


def at_time(time: int) -> Start:
    """Begin with the first message stored at `time` (nanoseconds since the epoch) or later."""
    return {"deliver_policy": "by_start_time", "opt_start_time": format_time(time, "nanoseconds")}


@dataclass(slots=True)
class StreamReader:
    """One consumer of a stream, and the delivery that is due from it.

    It reads messages whose subject matches one of `filters`. The server deletes a consumer without
    a pull for `lives` seconds. Methods that ask the broker raise `ConnectionLost` and `Rejected`.
    """

    connection: Connection
    stream: str
    name: str
    filters: Sequence[str] = (">",)
    headers_only: bool = False
    lives: int = 60
    next_number: int = field(default=1, init=False)
    """The number of the delivery that is due."""
    next_sequence: int = field(default=1, init=False)
    """Deliveries below this sequence are out of place."""
    server: str = field(default="", init=False)
    """The server of a cluster that has the consumer, and counts and delivers what it has itself."""
    _config: Mapping[str, Any] = field(default_factory=dict, init=False)
    _created: str = field(default="", init=False)

    async def create(self, start: Start) -> int:
        """Create a consumer that needs no acknowledgements; return how many messages wait for it.

        Raises `NameInUse`.
        """
        one_or_more: Start = {"filter_subjects": list(self.filters)}
        if len(self.filters) == 1:
            one_or_more = {"filter_subject": self.filters[0]}
        self._config = {
            "name": self.name,
            **one_or_more,
            **start,
            "headers_only": self.headers_only,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": self.lives * SECOND,
            # without it a second reader would share the consumer: its configuration is the same
            "description": secrets.token_hex(8),
        }
        state = await self._send_create()
        self._created, self.next_number = state["created"], 1
        self.server = (state.get("cluster") or {}).get("leader") or ""
        return int(state["num_pending"])

    async def replace(self, start: Start) -> int:
        """Create a consumer as `create` does, in place of any other one of its name."""
        for _ in range(_ATTEMPTS):
            with suppress(NameInUse):  # usually there is none, so create first
                return await self.create(start)
            await self.delete()
        raise ConnectionLost(f"consumer {self.consumer} cannot be replaced")

    async def count(self, start: Start) -> int:
        """Return how many messages there are from `start` on; leaves no consumer of this name."""
        waiting = await self.replace(start)
        await self.delete()
        return waiting

    async def require_alone(self) -> None:
        """Raise `OutOfOrder` if somebody else replaced the consumer or pulled from it.

        Creating a consumer again with its configuration returns its state, which needs fewer
        rights than asking for it.
        """
        try:
            state = await self._send_create()
        except NameInUse:
            raise OutOfOrder(f"somebody else replaced consumer {self.consumer}") from None
        delivered = int(state["delivered"]["consumer_seq"])
        if state["created"] != self._created or delivered != self.next_number - 1:
            raise OutOfOrder(f"somebody else pulled from consumer {self.consumer}")

    async def delete(self) -> None:
        """Delete the consumer if a broker takes the request; the server deletes it later anyway."""
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(_SHORT):
                await self.connection.api(f"CONSUMER.DELETE.{self.consumer}", patience=_SHORT)

    async def pull(self, most: int, most_bytes: int = 0, wait: float = 0.0) -> Pulled:
        """Pull as `pulling.pull` does; `verify` the messages next."""
        return await pulling.pull(self.connection, self.consumer, most, most_bytes, wait)

    async def follow(self, limits: PullLimits, wait: float, deliver: Deliver) -> str:
        """Follow as `pulling.follow` does; `deliver` has to `verify` each message."""
        return await pulling.follow(self.connection, self.consumer, limits, wait, deliver)

    def verify(self, messages: Messages) -> None:
        """Raise `OutOfOrder` unless these are the next deliveries, and expect those behind them."""
        number, sequence = self.next_number, self.next_sequence
        for delivery, _ in messages:
            if delivery.number != number or delivery.sequence < sequence or delivery.attempt != 1:
                raise OutOfOrder(f"delivery {delivery} where number {number} was due")
            number, sequence = delivery.number + 1, delivery.sequence + 1
        self.next_number, self.next_sequence = number, sequence

    async def _send_create(self) -> dict[str, Any]:
        request = {"stream_name": self.stream, "config": self._config, "action": "create"}
        try:
            return await self.connection.api(self._create_call, request, patience=_PATIENCE)
        except Rejected as error:
            if error.error in _NAME_IN_USE:
                raise NameInUse(self.consumer) from None
            raise

    @property
    def consumer(self) -> str:
        """The stream and the name, as subjects have them."""
        return f"{self.stream}.{self.name}"

    @property
    def _create_call(self) -> str:
        one_filter = f".{self.filters[0]}" if len(self.filters) == 1 else ""
        return f"CONSUMER.CREATE.{self.consumer}{one_filter}"
