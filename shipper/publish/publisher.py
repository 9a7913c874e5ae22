"""What an agent does at the broker: claims its host's subjects, rebuilds its positions, and publishes until the claim is lost.

A first session and one after a lost one begin alike: claim, rebuild, go on. In any doubt everything is asked of the stream
again. The newest start wins: whoever finds a newer agent behind its own first claim ends.

Rounds are published one at a time and in order, and stored once, whatever has to be retried: a round names the subject's
last sequence, so one that was stored before is refused. A refusal ends the session, as only the stream can say what
became of the round.
"""

import asyncio
import itertools
import logging
import math
import secrets
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.faults import fault
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected, stored_sequence
from nats_logship.client.config import read_streams
from nats_logship.client.connection import BrokerAway, Connection
from nats_logship.wire.message import (
    EXPECTED_SEQUENCE,
    MAX_FOLLOWED,
    Followed,
    Origin,
    encode_origin,
)
from nats_logship.wire.positions import Positions
from nats_logship.wire.subjects import InvalidSubject, Subject
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import (
    HostMessage,
    HostMessages,
    Snapshots,
    fenced_error,
    format_agent_id,
    get_max_payload,
    parse_agent_start,
)
from shipper.publish.rounds import LEAST_SIZE, Round
from shipper.publish.waiting import Waiting

_MILLISECOND = 1_000_000  # nanoseconds
_PATIENCE = 10.0  # seconds: another server may have to be asked
_LEAST_SPLIT = 4096  # bytes of a round that is split for a stream
_LONGEST = 30.0  # seconds: the server takes a connection for dead where its pings wait for 40
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


class SessionLost(Exception):
    """The claim does not hold any more: claim again, rebuild the positions, and go back to them."""


class RoundTooLarge(SessionLost):
    """The line, or the stream, does not take the round: read the files again in smaller ones."""


class Publisher:
    """The sessions of one run for one host, one after the other, and what they share.

    `agent`, `stream` and `max_payload` (what the broker takes at a time, in bytes) are those of the newest session.
    """

    def __init__(
        self,
        connection: Connection,
        host: str,
        clock: Callable[[], int],
        owner: str = "",
        tag: str = "",
    ) -> None:
        """Open none yet; `clock` is in nanoseconds, `owner` the host of the credential, `tag` eight hex digits."""
        self.connection = connection
        self.waiting = Waiting(host, owner)
        self.snapshots = Snapshots(connection, host)
        self.config = BrokerConfig(connection, host, clock)
        now = clock() // _MILLISECOND
        self.agent = self._run = format_agent_id(now, tag or secrets.token_hex(4))
        self.stream, self.max_payload = "", 0
        self._refused = sys.maxsize  # bytes of the last round that was too large for the stream
        self.patience: float | None = None  # seconds that a person waits for the broker
        self._clock = clock
        self._numbers = itertools.count(1)
        self._messages = HostMessages(connection, host, 1)
        self._first: tuple[str, int] | None = None  # stream and sequence of the run's first claim
        self._subject: Subject | None = None  # of the newest session
        self._last = 0  # sequence of that subject
        self._named: set[str] = set()

    def new_file(self) -> str:
        """Return an id for a file that was never followed."""
        return f"{self._run}.{next(self._numbers)}"

    def most_bytes(self, wanted: int) -> int:
        """Return so many bytes of lines, or fewer where a message would not take them with a last newline that is added."""
        return min(wanted, self.max_payload - 1, self._refused // 2)

    @property
    def obstacle(self) -> str:
        """Why nothing is published now: the pause, or what is waited for; empty while all goes well."""
        return str(self.config.pause or "") or self.connection.away or self.waiting.reason

    async def in_time(self, request: Awaitable[Answer], size: int = 0) -> Answer:
        """Wait for the broker no longer than the patience, if there is one.

        A request of `size` bytes may take as long as they take on a slow line besides.
        """
        most = self.patience
        if most is not None:
            most += self.connection.seconds_for(size)
        try:
            async with asyncio.timeout(most):
                return await request
        except TimeoutError:
            reason = self.obstacle or "no answer from the broker"
            raise BrokerAway(
                f"gave up after {most:.0f} s: {reason}; "
                "what is not acknowledged will be shipped the next time"
            ) from None

    async def save(self, positions: Positions) -> None:
        """Return once the broker has the positions."""
        await self.in_time(
            self.waiting.retry_until_answered(lambda: self.snapshots.write(positions))
        )

    async def prepare(self) -> None:
        """Read what the broker says to this host, however long it takes."""
        await self.waiting.retry_until_answered(self._read_limits)

    async def _read_limits(self) -> None:
        try:
            await self.config.read()
            self._messages.streams = await read_streams(self.connection)
        except ConfigurationError as error:  # all shippers of a broker wait until it is mended
            raise Rejected(400, 0, str(error)) from None
        self.max_payload = await get_max_payload(self.connection)

    async def claim(self, known: Positions) -> Positions:
        """Open a session, once a pause is over: claim all subjects of the host and return the positions, however long it takes.

        `known` are the positions of the session before; where there are none the snapshot counts. Raises `FencedError`.
        """
        while self.config.pause:
            await self.config.until_resumed()
            await self.prepare()
        subject = self.config.subject
        self.stream = self._messages.stream_of(subject)
        positions = await self.waiting.retry_until_answered(lambda: self._attempt(subject, known))
        self._subject = subject
        self._named.add(self.agent)
        logger.info("agent %s ships on %s", self.agent, subject)
        return positions

    async def _attempt(self, subject: Subject, known: Positions) -> Positions:
        ends = await self._claim_all(subject)
        start = known if known.covered else await self.snapshots.read()
        rebuilt = await self._messages.rebuild(start, ends)
        fault("rebuilt")
        # behind the stream: retention completes the snapshot, and purges then
        saved = await self.snapshots.read() if known.covered else start
        writers = [(one.stream, one.sequence, one.writer) for one in rebuilt.writers.values()]
        if self._outrank(writers + [("", 0, one.agent) for one in saved.covered.values()]):
            return await self._attempt(subject, known)
        if self._subject is not None:
            self._name(rebuilt.writers.values(), start)
        positions = rebuilt.positions.merge(saved)
        if self._subject is None or positions.files != known.files:
            await self.snapshots.write(positions)
            positions = positions.merge(self.snapshots.found)
        self._last = rebuilt.last[str(subject)]
        return positions

    async def _claim_all(self, subject: Subject) -> dict[str, int]:
        """Claim the subject, and what other subjects the host had; return where the host's lines end in each stream."""
        newest = await self._messages.find_last(self.stream, str(subject))
        # a replica that lags may not show the last message: what is rebuilt behind the claim does
        self._outrank([(newest.stream, newest.sequence, newest.writer)] if newest else [])
        claim = await self._claim(subject)
        self._first = self._first or (self.stream, claim)
        fault("claimed")
        left = await self._leave_others(subject, claim)
        if left:
            fault("left")
            follows = tuple(Followed(other.partition, end) for other, end in left.items())
            for first in range(0, len(follows), MAX_FOLLOWED):
                some = follows[first : first + MAX_FOLLOWED]
                claim = await self._claim(subject, follows=some)
        ends = {self.stream: claim}
        for other, end in left.items():
            stream = self._messages.stream_of(other)
            ends[stream] = max(end, ends.get(stream, 0))
        return ends

    def _outrank(self, writers: Iterable[tuple[str, int, str]]) -> bool:
        """Take an id above those of agents that were there before, whose clocks ran ahead; return whether there were any.

        `writers` are the stream and the sequence of a message, and who wrote it. Raises `FencedError` for an agent that
        came later: behind the first claim of this one, or once this one had a session.
        """
        before = self.agent
        for stream, sequence, agent in writers:
            start = parse_agent_start(agent)
            if start is None or agent <= self.agent:
                continue
            is_later = self._first and stream == self._first[0] and sequence > self._first[1]
            if self._subject is not None or is_later:
                raise fenced_error(agent)
            self.agent = format_agent_id(start + 1, before[-8:])
        return self.agent != before

    async def _claim(
        self, subject: Subject, *, follows: tuple[Followed, ...] = (), moved: int | None = None
    ) -> int:
        """Store an empty message, after which no older agent can publish on the subject; return its sequence.

        The message says which partitions had the host's lines before, or that they have `moved` from here. After
        `ConnectionLost` it may be stored or not; a second claim does no harm.
        """
        origin = Origin(self.agent, self._clock(), follows=follows, moved=moved)
        return stored_sequence(await self.connection.ask(str(subject), b"", encode_origin(origin)))

    async def _leave_others(self, subject: Subject, claim: int) -> dict[Subject, int]:
        """Claim the subjects that the host had with other numbers of partitions, and say on each that its lines have moved.

        An older agent may still publish there. Returns where the host's lines end on each: the receiver of this partition
        writes nothing before they are received. Of the subject of the session before retention may have removed all.
        """
        heads = await self._messages.read_last()
        if not any(head.stream == self.stream and head.sequence >= claim for head in heads):
            raise ConnectionLost(f"stream {self.stream} does not show the claim yet")
        left: dict[Subject, int] = {}
        for head in heads:
            other = _subject_of(head)
            if other is None or other == subject:
                continue
            says_so = head.origin is not None and head.origin.moved == subject.partition
            left[other] = (
                head.sequence if says_so else await self._claim(other, moved=subject.partition)
            )
        before = self._subject
        if before is not None and before != subject and before not in left:
            with suppress(Rejected):  # that's fine: the stream was made anew, with fewer subjects
                left[before] = await self._claim(before, moved=subject.partition)
        return left

    def _name(self, writers: Iterable[HostMessage], known: Positions) -> None:
        """Say once of each who else wrote to the host's subjects, for which the session before was lost."""
        for other in writers:
            covered, who = known.covered.get(other.stream), other.writer or "no agent"
            is_news = covered is None or other.sequence > covered.sequence
            if is_news and who not in self._named and _subject_of(other) is not None:
                self._named.add(who)
                message = (
                    "another client (%s) wrote to %s, which is for this host's shipper only, at sequence %d: claimed again; "
                    "find that client, and give it a subject of its own or take its right to this one"
                )
                logger.warning(message, who, other.subject, other.sequence)

    # publishing

    async def publish(self, round_: Round) -> int:
        """Return the sequence of the round's message once it is on disk, however long that takes; raises `SessionLost`."""
        self._last = await self.waiting.retry_until_answered(lambda: self._store(round_))
        return self._last

    async def publish_unacknowledged(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        await self.waiting.retry_until_answered(lambda: self._send(round_))
        return 0

    async def _until_open(self, round_: Round) -> None:
        """Return when a round may be sent; raises `SessionLost` where it is too large by now."""
        await self.config.until_resumed()
        if len(round_.payload) > (most := await get_max_payload(self.connection)):
            raise SessionLost(f"the broker takes {most} bytes at a time now")

    async def _send(self, round_: Round) -> None:
        await self._until_open(round_)
        client, subject = await self.connection.client(), str(self.config.subject)
        most, guard = self._most_seconds(round_), self.connection.guard

        async def send() -> None:
            sending = self.connection.publish(subject, round_.payload, "", round_.headers)
            await guard(sending, most, subject)
            await guard(client.flush(math.ceil(most)), most, subject)

        await self._unless_too_slow(round_, send())

    async def _store(self, round_: Round) -> int:
        """Send a round and return its sequence; raises `SessionLost`, `ConnectionLost`, `Rejected`."""
        await self._until_open(round_)
        if self.config.subject != self._subject:
            raise SessionLost("the number of partitions changed")
        headers = round_.headers | {EXPECTED_SEQUENCE: str(self._last)}
        payload, subject = round_.payload, str(self._subject)
        fault("sending")
        asking = self.connection.ask(subject, payload, headers, _PATIENCE)
        try:
            answer = await self._unless_too_slow(round_, asking)
        except Rejected as error:
            if error.is_wrong_sequence:
                last = f"{subject} does not end at sequence {self._last} any more"
                raise SessionLost(f"{last} ({error.description})") from None
            if error.is_too_large and len(payload) > _LEAST_SPLIT:
                self._refused = len(payload)
                raise RoundTooLarge(f"{error.description}: {format_size(len(payload))}") from None
            if error.is_write_under_way:  # this round's, sent before: the next try is refused
                raise ConnectionLost(str(error)) from None
            raise
        fault("stored")
        return stored_sequence(answer)

    async def _unless_too_slow(self, round_: Round, sending: Awaitable[Answer]) -> Answer:
        """Return what becomes of a round; what was sent on to a leader that died is never answered.

        Raises `RoundTooLarge` for a large round of which nothing has come when the line, or the
        time, is over, and then drops what is still on its way.
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
        """Return the seconds that a round may take, which is as large as the line was quick."""
        return min(_PATIENCE + self.connection.seconds_for(len(round_.payload)), _LONGEST)


def _subject_of(head: HostMessage) -> Subject | None:
    try:
        return Subject.parse(head.subject)
    except InvalidSubject:
        return None  # a plain client's, no agent's
