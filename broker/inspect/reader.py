"""Reads a stream forward, in its order and without a hole, through a consumer of its own; and single messages. Changes nothing.

No message comes twice: after a lost connection, a restarted broker or a consumer that was removed, the reader goes on
behind the last message that it returned. A stream that is made anew meanwhile takes another reader.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from broker.inspect.message import StoredMessage
from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import SECOND
from nats_logship.app.units import Moment
from nats_logship.client import find
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import ELECTION, Connection, until_answered
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.find import find_sequence
from nats_logship.client.pulling import pull
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.subjects import host_filter, reader_names

Start = Mapping[str, Any]
"""Where a reader begins, as the configuration of a consumer says it."""
LAST_PER_SUBJECT: Start = {"deliver_policy": "last_per_subject", "filter_subjects": [">"]}
"""Begin with the last message of every subject, in stream order, and go on with what comes."""

_BATCH = 5000  # messages; the bundled broker refuses more than 10,000 at a time
_PULL_BYTES = 8 * 1024 * 1024  # at least; a message that does not fit into a pull would never come
_EXPIRES = 4  # seconds
_INACTIVE = 60  # seconds after which the server removes a consumer that nobody pulls from
_PAUSE = 0.5  # seconds before a broker that could not answer is asked again
_UNAVAILABLE = 503
_NAME_IN_USE = {
    ErrorCode.CONSUMER_NAME_EXIST,
    ErrorCode.CONSUMER_EXISTING_ACTIVE,
    ErrorCode.CONSUMER_ALREADY_EXISTS,
}
logger = logging.getLogger(__name__)


def at_sequence(sequence: int) -> Start:
    """Begin with the first message at `sequence` or behind it."""
    return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, sequence)}


class MessageReader:
    """Reads one stream from a start on."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        start: Start,
        filters: Sequence[str] = (),
        *,
        headers_only: bool = False,
    ) -> None:
        """Read messages whose subject matches one of `filters`, none meaning all. Ask nothing yet."""
        self._connection = connection
        self._stream = stream
        self._config = {"headers_only": headers_only, "filter_subjects": list(filters)}
        self._start = start
        self._next = 0  # sequence; 0 before the first message
        self._client: BrokerClient | None = None  # with our consumer; None where it has to be made
        self._consumer = ""
        self._number = 0  # of the delivery that is due

    async def follow(self) -> list[StoredMessage]:
        """Return the messages that have come since, at least one, through restarts of the broker; raises `Rejected`."""
        while True:
            try:
                if await self._connection.client() is not self._client:
                    await self._open()
                if found := await self._pull(waits=True):
                    return found
                continue
            except ConnectionLost as error:
                logger.debug("reading stream %s again: %s", self._stream, error)
            except Rejected as error:
                if error.code != _UNAVAILABLE:
                    raise
            await asyncio.sleep(_PAUSE)

    async def read_all(self, last: int | None = None) -> AsyncGenerator[StoredMessage, None]:
        """Yield what is there up to the sequence `last`, by default the stream's end, through elections.

        What is purged, or expires, meanwhile is not waited for. Raises `ConnectionLost`, `Rejected`, `OperatorError`.
        """
        end = last or 0

        async def more(connection: Connection) -> list[StoredMessage]:
            nonlocal end
            if self._client is None:
                await self._open()
            if last is None and not self._next:
                # behind the beginning: a host that sends meanwhile has a last message that no earlier end includes
                end = int(
                    (await connection.api(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"]
                )
            return [] if self._next > end else await self._pull(waits=False)

        try:
            while found := await until_answered(self._connection, more, ELECTION):
                for one in found:
                    if one.sequence <= end:
                        yield one
        finally:
            await self.close()

    async def count(self) -> int:
        """Return how many messages there are from the start on; raises `ConnectionLost`, `Rejected`, `OperatorError`."""
        try:
            return await self._open()
        finally:
            await self.close()

    async def close(self) -> None:
        """Remove the consumer; a broker that is away removes it by itself."""
        with suppress(ConnectionLost, Rejected, TimeoutError):
            async with asyncio.timeout(1):
                if self._client is not None:
                    name = f"CONSUMER.DELETE.{self._stream}.{self._consumer}"
                    await self._connection.api(name, patience=1)
        self._client = None

    async def _pull(self, *, waits: bool) -> list[StoredMessage]:
        """Pull what is there; where that is nothing, one that `waits` returns what comes within four seconds.

        What was lost on its way is read again: through a new consumer, from the first message on that was not returned.
        """
        largest = self._client.max_payload if self._client else 0
        most_bytes, wait = max(_PULL_BYTES, 2 * largest), _EXPIRES if waits else 0
        consumer = f"{self._stream}.{self._consumer}"
        try:
            pulled = await pull(self._connection, consumer, _BATCH, most_bytes, wait)
            found = [self._read(delivery, message) for delivery, message in pulled.messages]
        except ConnectionLost:
            self._client = None
            raise
        if found:
            self._next = found[-1].sequence + 1
            if pulled.is_cut:
                await self.close()  # a new consumer begins there
        return found

    def _read(self, delivery: Delivery, message: RawMessage) -> StoredMessage:
        if delivery.number != self._number or delivery.sequence < self._next:
            raise ConnectionLost(f"delivery {delivery.number} came, {self._number} was due")
        self._number = delivery.number + 1
        name, sequence, stored_at = message.subject, delivery.sequence, delivery.stored_at
        size = message.size if self._config["headers_only"] else len(message.data)
        headers = message.headers or {}
        return StoredMessage(name, sequence, stored_at, headers, message.data, size)

    async def _open(self) -> int:
        """Make a consumer of our own: under a name that a monitor's rights list, where we are one, else a new one.

        Return how many messages wait for it.
        """
        client = await self._connection.client()
        nonce, own = secrets.token_hex(8), self._connection.own
        names = reader_names(own) if own else (f"logbroker-{nonce}",)
        config = {
            **self._config,
            **(at_sequence(self._next) if self._next else self._start),
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": _INACTIVE * SECOND,
            # the server takes one that is alike for the one that is there
            "metadata": {"reader": nonce},
        }
        for name in random.sample(names, len(names)):
            self._consumer = name
            call = f"CONSUMER.CREATE.{self._stream}.{name}"
            body = {"stream_name": self._stream, "config": {"name": name, **config}}
            try:
                made = await self._connection.api(call, {**body, "action": "create"})
            except Rejected as error:
                if error.error not in _NAME_IN_USE:
                    raise
            else:
                self._client, self._number = client, 1
                return int(made["num_pending"])
        raise OperatorError(
            f"{len(names)} readers of this monitor are at work; end one, or try again in {_INACTIVE} s"
        )


async def follow(readers: Sequence[MessageReader]) -> AsyncGenerator[list[StoredMessage], None]:
    """Yield what comes in several streams, as it comes; raises as `MessageReader.follow`."""
    reading = {asyncio.ensure_future(reader.follow()): reader for reader in readers}
    try:
        while True:
            done, _ = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                reader = reading.pop(one)
                yield one.result()
                reading[asyncio.ensure_future(reader.follow())] = reader
    finally:
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def find_sequence_at(connection: Connection, stream: str, moment: Moment, end: int) -> int:
    """Return the first sequence of a stream at a sequence, or stored at a time, or later; at most `end`."""
    if isinstance(moment, datetime):
        found = await find_sequence(connection, stream, moment)
        moment = end if found is None else found
    return min(moment, end)


async def get_message(connection: Connection, stream: str, sequence: int | None) -> StoredMessage:
    """Return the message at a sequence of a stream, None meaning the last one; raises `OperatorError` where there is none."""
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    wanted = state["last_seq"] if sequence is None else sequence
    if (found := await find_message(connection, stream, {"seq": wanted})) is None:
        holds = f"{state['first_seq']} to {state['last_seq']}" if state["messages"] else "none"
        raise OperatorError(f"no message {wanted}: stream {stream} holds {holds}")
    return found


async def get_last_message(
    connection: Connection, streams: Sequence[str], host: str
) -> StoredMessage:
    """Return the message of a host that was stored last, in whichever stream and partition; raises `OperatorError`."""
    asked = {"last_by_subj": host_filter(host)}
    found = [one for name in streams if (one := await find_message(connection, name, asked))]
    if not found:
        raise OperatorError(f"no message of host {host} is in {', '.join(streams)}")
    return max(found, key=lambda message: message.stored_at)


async def find_message(
    connection: Connection, stream: str, request: Mapping[str, Any]
) -> StoredMessage | None:
    """Return a message of a stream as `nats_logship.client.find.find_message` does."""
    if (found := await find.find_message(connection, stream, request)) is None:
        return None
    return StoredMessage(
        name=found.subject,
        sequence=found.sequence,
        stored_at=found.stored_at,
        headers=found.headers,
        payload=found.payload,
        size=len(found.payload),
    )
