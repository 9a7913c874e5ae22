"""Reads streams for people, forward or single messages; changes nothing.

After a lost connection, a restarted broker or a deleted consumer a reader continues behind the last
message that it returned: no message is returned twice. A stream that is created again needs a new
reader.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

from nats_logship.app.exits import OperatorError
from nats_logship.app.timestamps import Moment
from nats_logship.client.answer import ConnectionLost, Rejected, require_up_to_date
from nats_logship.client.client import BrokerClient
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.find import find_message, find_sequence
from nats_logship.client.stream_reader import NameInUse, Start, StreamReader, at_sequence
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.subjects import host_filter, reader_names

_BATCH = 5000  # messages; the bundled broker refuses more than 10,000 at a time
_PULL_BYTES = 8 * 1024 * 1024  # at least; a message that does not fit into a pull would never come
_EXPIRES = 4  # seconds that a pull waits for messages
_INACTIVE = 60  # seconds without a pull after which the server deletes the consumer
_PAUSE = 0.5  # seconds before a broker that could not answer is asked again
_UNAVAILABLE = 503
logger = logging.getLogger(__name__)


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
        """Read messages whose subject matches a filter, all without filters. Ask nothing yet."""
        self._connection = connection
        self._stream = stream
        self._filters = filters or (">",)
        self._headers_only = headers_only
        self._start = start
        self._next = 0  # sequence; 0 before the first message
        self._client: BrokerClient | None = None  # on which the consumer was created
        self._reader: StreamReader | None = None  # None when a consumer is to be created

    async def follow(self) -> list[StreamMessage]:
        """Return new messages, at least one, through restarts of the broker; raises `Rejected`."""
        while True:
            try:
                if await self._connection.client() is not self._client:
                    self._reader = None
                if found := await self._pull(_EXPIRES):
                    return found
                continue
            except ConnectionLost as error:
                logger.debug("reading stream %s again: %s", self._stream, error)
            except Rejected as error:
                if error.code != _UNAVAILABLE:
                    raise
            await asyncio.sleep(_PAUSE)

    async def read_all(self, last: int | None = None) -> AsyncGenerator[StreamMessage, None]:
        """Yield the messages up to the sequence `last`, by default the end of the stream.

        Continues through elections. Messages that are removed meanwhile are left out. Raises
        `ConnectionLost`, `Rejected`, `OperatorError`.
        """
        end, began = last or 0, asyncio.get_running_loop().time()

        async def pull_more(connection: Connection) -> list[StreamMessage]:
            nonlocal end
            await self._open()
            if last is None and not self._next:
                # asked behind the start of reading: otherwise a host that sends meanwhile would be
                # left out, since its last message is behind the end
                info = await connection.api(f"STREAM.INFO.{self._stream}")
                end = int(info["state"]["last_seq"])
            found = [] if self._next > end else await self._pull(wait=0)
            if not found and self._next <= end:
                await self._require_complete(began)
            return found

        try:
            while found := await retry_until_answered(self._connection, pull_more, ELECTION):
                for one in found:
                    if one.sequence <= end:
                        yield one
        finally:
            await self.close()

    async def count(self) -> int:
        """Return how many messages there are from the start on.

        Raises `ConnectionLost`, `Rejected`, `OperatorError`.
        """
        began = asyncio.get_running_loop().time()

        async def ask(_: Connection) -> int:
            waiting = await self._create()
            await self._require_complete(began)
            return waiting

        try:
            return await retry_until_answered(self._connection, ask, ELECTION)
        finally:
            await self.close()

    async def _require_complete(self, began: float) -> None:
        """Raise `ConnectionLost` if the server that was read may lack messages of before `began`.

        The next consumer may be on another server. `began` is a time of the loop.
        """
        if self._reader is None or not (await self._connection.client()).is_clustered:
            return
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        age = asyncio.get_running_loop().time() - began
        try:
            require_up_to_date(info, self._reader.server, age)
        except ConnectionLost:
            await self.close()
            raise

    async def close(self) -> None:
        """Delete the consumer; without a broker it ends by itself later."""
        if self._reader is not None:
            await self._reader.delete()
        self._reader = None

    async def _pull(self, wait: float) -> list[StreamMessage]:
        """Pull the waiting messages; if there are none, those that come within `wait` seconds.

        After a loss the next pull is from a new consumer.
        """
        reader = await self._open()
        largest = self._client.max_payload if self._client else 0
        try:
            pulled = await reader.pull(_BATCH, max(_PULL_BYTES, 2 * largest), wait)
            reader.verify(pulled.messages)
        except ConnectionLost:
            self._reader = None
            raise
        self._next = reader.next_sequence if pulled.messages else self._next
        if pulled.is_cut:
            await self.close()
        return [self._parse(delivery, message) for delivery, message in pulled.messages]

    def _parse(self, delivery: Delivery, message: RawMessage) -> StreamMessage:
        return StreamMessage(
            subject=message.subject,
            sequence=delivery.sequence,
            stored_at=delivery.stored_at,
            headers=message.headers or {},
            payload=message.data,
            left_out=message.size if self._headers_only else 0,
        )

    async def _open(self) -> StreamReader:
        if self._reader is None:
            await self._create()
        assert self._reader
        return self._reader

    async def _create(self) -> int:
        """Create a consumer and return how many messages wait for it.

        A monitor may only use the names that its rights list.
        """
        self._client = await self._connection.client()
        own = self._connection.user_token
        names = reader_names(own) if own else (f"logbroker-{secrets.token_hex(8)}",)
        start = at_sequence(self._next) if self._next else self._start
        for name in random.sample(names, len(names)):
            reader = StreamReader(
                self._connection,
                self._stream,
                name,
                self._filters,
                headers_only=self._headers_only,
                lives=_INACTIVE,
            )
            try:
                waiting = await reader.create(start)
            except NameInUse:
                continue
            reader.next_sequence = max(1, self._next)
            self._reader = reader
            return waiting
        raise OperatorError(
            f"all {len(names)} consumers that this monitor may create are in use; end another "
            f"reader, or try again in {_INACTIVE} s"
        )


async def follow(readers: Sequence[MessageReader]) -> AsyncGenerator[list[StreamMessage], None]:
    """Yield new messages of several streams; raises as `MessageReader.follow`."""
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
    """Return the sequence that a moment means in a stream, at most `end`.

    For a time this is the first message stored then or later.
    """
    if isinstance(moment, datetime):
        found = await find_sequence(connection, stream, moment)
        moment = end if found is None else found
    return min(moment, end)


async def get_message(connection: Connection, stream: str, sequence: int | None) -> StreamMessage:
    """Return the message at a sequence of a stream, None meaning the last one.

    Raises `OperatorError` if there is none.
    """
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    wanted = state["last_seq"] if sequence is None else sequence
    if (found := await find_message(connection, stream, {"seq": wanted})) is None:
        holds = f"{state['first_seq']} to {state['last_seq']}" if state["messages"] else "none"
        raise OperatorError(f"no message {wanted}: stream {stream} holds {holds}")
    return found


async def get_last_message(
    connection: Connection, streams: Sequence[str], host: str
) -> StreamMessage:
    """Return the message of a host that was stored last, in any stream and partition.

    Raises `OperatorError` if there is none.
    """
    asked = {"last_by_subj": host_filter(host)}
    found = [one for name in streams if (one := await find_message(connection, name, asked))]
    if not found:
        raise OperatorError(f"no message of host {host} is in {', '.join(streams)}")
    return max(found, key=lambda message: message.stored_at)
