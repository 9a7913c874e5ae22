"""Publishes the rounds of a host, one at a time and in order.

Each round is stored exactly once, whatever has to be retried: a round names the last sequence of
its subject, so the stream refuses a round that it already has. A refusal ends the session; the next
claim asks the stream what became of the round. `UnacknowledgedPublisher` (`--no-ack`) makes no
claim, names no sequence and promises nothing.
"""

import asyncio
import itertools
import logging
import math
import secrets
import sys
from collections.abc import Awaitable
from typing import TypeVar

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.faults import fault
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected, stored_sequence
from nats_logship.client.config import read_streams
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.client.payload import get_max_payload
from nats_logship.wire.message import EXPECTED_SEQUENCE
from nats_logship.wire.positions import Positions
from nats_logship.wire.streams import stream_of
from shipper.clock import Clock
from shipper.publish.claims import Claims
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import Snapshots, format_agent_id
from shipper.publish.rounds import LEAST_SIZE, Round
from shipper.publish.waiting import Waiting

_MILLISECOND = 1_000_000  # nanoseconds
_PATIENCE = 10.0  # seconds: another server may have to be asked
_LEAST_SPLIT = 4096  # bytes: a smaller round is not split, although the stream refuses it
_LONGEST = 30.0  # seconds: a server whose pings wait for 40 takes the connection for dead
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


class SessionLost(Exception):
    """The claim does not hold any more: claim again and go back to the positions found then."""


class RoundTooLarge(SessionLost):
    """The connection or the stream does not take the round: read the files in smaller ones."""


class RoundRefused(RoundTooLarge):
    """The stream refuses rounds of this size."""


class Publisher:
    """Claims the host's subject, and stores each round once behind the claim.

    `stream` and `max_payload` (bytes of one message) are those of the newest session. `patience` is
    how many seconds the broker is waited for, None without a limit.
    """

    def __init__(
        self,
        connection: Connection,
        host: str,
        clock: Clock,
        denial: str = "",
        tag: str = "",
    ) -> None:
        """`tag`, eight hex digits, is random by default."""
        self.connection = connection
        self.waiting = Waiting(denial)
        self.snapshots = Snapshots(connection, host)
        self.config = BrokerConfig(connection, host, clock)
        self.stream, self.max_payload = "", 0
        self.patience: float | None = None
        self._run = format_agent_id(clock.wall() // _MILLISECOND, tag or secrets.token_hex(4))
        self._claims = Claims(connection, host, clock.wall, self._run, self.snapshots)
        self._streams = 1
        self._refused = sys.maxsize  # bytes of the last round that the stream found too large
        self._numbers = itertools.count(1)

    @property
    def agent(self) -> str:
        """The id of this run, as of its newest claim."""
        return self._claims.agent

    @property
    def owner(self) -> str:
        """The id of this run once it has claimed the host; empty before that."""
        return self._claims.agent if self._claims.subject else ""

    def new_file(self) -> str:
        """Return an id for a file that was never followed."""
        return f"{self._run}.{next(self._numbers)}"

    def limit_bytes(self, wanted: int) -> int:
        """Return how many bytes of lines fit into a message, at most `wanted`."""
        # one byte is for a newline that the last line may lack
        return min(wanted, self.max_payload - 1, self._refused // 2)

    @property
    def obstacle(self) -> str:
        """Why nothing is published now (a pause, or the broker); empty if nothing is in the way."""
        return str(self.config.pause or "") or self.connection.away or self.waiting.reason

    async def in_time(self, request: Awaitable[Answer], size: int = 0) -> Answer:
        """Wait for a request for at most the patience; raises `BrokerAway`.

        A request of `size` bytes may also take as long as a slow connection needs.
        """
        if self.patience is None:
            return await request
        most = self.patience + self.connection.seconds_for(size)
        try:
            async with asyncio.timeout(most):
                return await request
        except TimeoutError:
            reason = self.obstacle or "no answer from the broker"
            raise BrokerAway(
                f"gave up after {most:.0f} s: {reason}; "
                "lines that are not acknowledged are shipped by the next run"
            ) from None

    async def save(self, positions: Positions) -> None:
        """Return once the broker has the positions."""
        write = lambda: self.snapshots.write(positions)  # noqa: E731
        await self.in_time(self.waiting.retry_until_answered(write))

    async def prepare(self) -> None:
        """Read the partitions, pauses and limits of the broker, however long that takes."""
        await self.waiting.retry_until_answered(self._read_limits)

    async def _read_limits(self) -> None:
        try:
            await self.config.read()
            self._streams = await read_streams(self.connection)
        except ConfigurationError as error:  # all shippers wait until an administrator corrects it
            raise Rejected(400, 0, str(error)) from None
        self.max_payload = await get_max_payload(self.connection)

    async def open_session(self, known: Positions) -> Positions:
        """Claim the host's subjects, and return the positions to read on from.

        `known` are the positions of the session before. Waits for the broker and for the end of a
        pause, however long. Raises `FencedError` for a newer agent.
        """
        while self.config.pause:
            await self.config.until_resumed()
            await self.prepare()
        subject, claims = self.config.subject, self._claims
        self.stream = stream_of(subject.partition, self._streams)
        positions = await self.waiting.retry_until_answered(
            lambda: claims.claim(subject, self._streams, known)
        )
        logger.info("agent %s ships on %s", self.agent, subject)
        return positions

    async def publish(self, round_: Round) -> int:
        """Return the sequence of a round once the broker has it on disk; raises `SessionLost`."""
        self._claims.last = await self.waiting.retry_until_answered(lambda: self._store(round_))
        return self._claims.last

    async def _store(self, round_: Round) -> int:
        await self._wait_until_open(round_)
        claims, size = self._claims, len(round_.payload)
        if self.config.subject != claims.subject:
            raise SessionLost("the number of partitions changed")
        headers = round_.headers | {EXPECTED_SEQUENCE: str(claims.last)}
        subject = str(claims.subject)
        fault("sending")
        asking = self.connection.ask(subject, round_.payload, headers, _PATIENCE)
        try:
            answer = await self._send_in_time(round_, asking)
        except Rejected as error:
            if error.is_wrong_sequence:
                text = f"{subject} no longer ends at sequence {claims.last}"
                raise SessionLost(f"{text} ({error.description})") from None
            if error.is_too_large and size > _LEAST_SPLIT:
                self._refused = size
                raise RoundRefused(f"{error.description}: {format_size(size)}") from None
            if error.is_write_under_way:  # of this round, sent before: the next try is refused
                raise ConnectionLost(str(error)) from None
            raise
        fault("stored")
        return stored_sequence(answer)

    async def _wait_until_open(self, round_: Round) -> None:
        """Return once the host may publish; raises `SessionLost` for a round that is too large."""
        await self.config.until_resumed()
        if len(round_.payload) > (most := await get_max_payload(self.connection)):
            raise SessionLost(f"the broker takes {most} bytes at a time now")

    async def _send_in_time(self, round_: Round, sending: Awaitable[Answer]) -> Answer:
        """Return the answer to a round; a leader that died never answers.

        Raises `ConnectionLost`; for a large round that took too long, `RoundTooLarge`: the
        connection is then closed, so that nothing of the round is still on its way.
        """
        clock, most = asyncio.get_running_loop().time, self._most_seconds(round_)
        began = clock()
        try:
            async with asyncio.timeout(most):
                return await sending
        except TimeoutError:
            lost = ConnectionLost(f"no answer in {most:.0f} s")
            self.connection.note_outcome(most, lost)
        except ConnectionLost as error:
            lost = error
        took, size = clock() - began, len(round_.payload)
        if size <= LEAST_SIZE or took < _PATIENCE:
            raise lost
        self.connection.abandon()
        self.waiting.retries["lost"] += 1
        raise RoundTooLarge(f"{lost} for a round of {format_size(size)}")

    def _most_seconds(self, round_: Round) -> float:
        return min(_PATIENCE + self.connection.seconds_for(len(round_.payload)), _LONGEST)


class UnacknowledgedPublisher(Publisher):
    """Publishes rounds for `--no-ack`: they may be lost, repeated or reordered."""

    async def open_session(self, known: Positions) -> Positions:
        """Return the positions of the snapshot at the start, later those that are known."""
        if known.files:  # after the start: a file's position is saved before its first round
            return known
        return await self.waiting.retry_until_answered(self.snapshots.read)

    async def publish(self, round_: Round) -> int:
        """Return 0 once the broker has read the round."""
        await self.waiting.retry_until_answered(lambda: self._send(round_))
        return 0

    async def _send(self, round_: Round) -> None:
        await self._wait_until_open(round_)
        client, subject = await self.connection.client(), str(self.config.subject)
        most, guard = self._most_seconds(round_), self.connection.guard

        async def send() -> None:
            sending = self.connection.publish(subject, round_.payload, "", round_.headers)
            await guard(sending, most, subject)
            await guard(client.flush(math.ceil(most)), most, subject)

        await self._send_in_time(round_, send())
