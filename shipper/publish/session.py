"""What an agent does at the broker: claims its host's subjects, rebuilds its positions, and publishes until the claim is lost.

A first session and one after a lost one begin alike: claim, rebuild, go on. In any doubt everything is asked of the stream
again. The newest start wins: whoever finds a newer agent behind its own first claim ends.

Rounds are published one at a time and in order, and stored once, whatever has to be retried: a round names the subject's
last sequence, so one that was stored before is refused. A refusal ends the session, as only the stream can say what
became of the round.
"""

import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from broker.app.exits import ConfigurationError
from broker.app.faults import fault
from broker.client.answer import ConnectionLost, Rejected, stored_at
from broker.client.config import read_streams
from broker.client.connection import Connection
from broker.wire.message import EXPECTED_SEQUENCE, Followed
from broker.wire.positions import Covered, Positions
from broker.wire.subjects import InvalidSubject, Subject
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import (
    AgentId,
    HostMessage,
    HostMessages,
    Rebuilt,
    Snapshots,
    fenced_by,
    largest_payload,
    newest_in,
)
from shipper.publish.rounds import Round
from shipper.publish.waiting import Waiting

_MILLISECOND = 1_000_000  # nanoseconds
_PATIENCE, _PATIENCE_AMONG = 30.0, 8.0  # seconds; the second where another server can be asked
_SLOWEST = 20_000  # bytes a second, of a line that still takes a round
_MESSAGE_TOO_LARGE = 10054
_LEAST_PAYLOAD = 1024
logger = logging.getLogger(__name__)


class SessionLost(Exception):
    """The claim does not hold any more: claim again, rebuild the positions, and go back to them."""


class Sessions:
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
        """Open none yet; `clock` is nanoseconds since the epoch, `owner` the host of the credential.

        `tag` is eight hex digits, random ones by default.
        """
        self.connection = connection
        self.waiting = Waiting(host, owner)
        self.snapshots = Snapshots(connection, host)
        self.config = BrokerConfig(connection, host, clock)
        now = clock() // _MILLISECOND
        self.agent = self._run = AgentId.following(None, now, tag or secrets.token_hex(4))
        self.stream, self.max_payload = "", 0
        self._clock = clock
        self._numbers = itertools.count(1)
        self._messages = HostMessages(connection, host, 1)
        self._first_stream, self._first = "", 0  # where the first claim of the run is stored
        self._subject: Subject | None = (
            None  # of the newest session, whose last sequence is `_last`
        )
        self._last = 0
        self._largest: int | None = (
            None  # message that the stream takes, where the server takes more
        )
        self._named: set[str] = set()

    def new_file(self) -> str:
        """Return an id for a file that was never followed."""
        return f"{self._run}.{next(self._numbers)}"

    def most_bytes(self, wanted: int) -> int:
        """Return so many bytes of lines, or fewer where a message would not take them with a last newline that is added."""
        return min(wanted, self.max_payload - 1)

    async def prepare(self) -> None:
        """Read what the broker says to this host, however long it takes; raises `ConfigurationError` where it takes no rounds."""
        await self.waiting.until_answered(self.config.read)
        self.max_payload = await self._most_payload()
        streams = lambda: read_streams(self.connection)  # noqa: E731
        self._messages.streams = await self.waiting.until_answered(streams)
        self.stream = self._messages.stream_of(self.config.subject)

    async def claim(self, known: Positions) -> Positions:
        """Open a session, once a pause is over: claim all subjects of the host and return the positions, however long it takes.

        `known` are the positions of the session before; where there are none the snapshot counts. Raises `FencedError`.
        """
        while self.config.pause:
            await self.config.until_resumed()
            await self.prepare()
        subject = self.config.subject
        positions = await self.waiting.until_answered(lambda: self._attempt(subject, known))
        self._subject = subject
        logger.info("agent %s ships on %s", self.agent, subject)
        return positions

    async def _attempt(self, subject: Subject, known: Positions) -> Positions:
        claim = await self._claim(subject)
        fault("claimed")
        ends = await self._leave_others(subject, claim)
        if ends:
            fault("left")
            follows = tuple(Followed(other.partition, end.sequence) for other, end in ends.items())
            claim = await self._store_claim(subject, follows=follows)
        left = self._last_of_streams(ends)
        start = known if known.covered else await self.snapshots.read()
        unread = [name for name, last in left.items() if start.covered.get(name) != last]
        rebuilt = await self._messages.rebuild(start, (self.stream, *unread), str(self.agent))
        fault("rebuilt")
        _require_read(rebuilt.positions, {self.stream: Covered(claim, str(self.agent)), **left})
        # behind the stream: retention completes the snapshot, and purges then
        saved = await self.snapshots.read() if known.covered else start
        if ahead := self._ahead(rebuilt, saved):
            self.agent = AgentId.following(ahead, self.agent.start, self.agent.tag)
            return await self._attempt(subject, known)
        if self._subject is not None:
            self._name(rebuilt.others.values(), start)
        positions = rebuilt.positions.joined(saved)
        if self._subject is None or positions.files != known.files:
            await self.snapshots.write(positions)
            positions = positions.joined(self.snapshots.found)
        self._last = rebuilt.last[str(subject)]
        return positions

    async def _claim(self, subject: Subject) -> int:
        """Claim the subject for its lines, above the agent of its last message; raises `FencedError` where that one came later.

        A replica that lags may not show the last message: what is rebuilt behind the claim does.
        """
        newest = await self._messages.newest(subject)
        if self._first:
            self._newest([newest] if newest else [])
            return await self._store_claim(subject)
        self.agent = AgentId.following(
            newest.agent if newest else None, self._run.start, self._run.tag
        )
        self._first = await self._store_claim(subject)
        self._first_stream = self.stream
        return self._first

    async def _store_claim(
        self, subject: Subject, *, follows: tuple[Followed, ...] = (), moved: int | None = None
    ) -> int:
        return await self._messages.claim(
            subject, self.agent, self._clock(), follows=follows, moved=moved
        )

    async def _leave_others(self, subject: Subject, claim: int) -> dict[Subject, Covered]:
        """Claim the subjects that the host had with other numbers of partitions, and say on each that its lines have moved.

        An older agent may still publish there. Returns where the host's lines end on each: the receiver of this partition
        writes nothing before they are received. Of the subject of the session before retention may have removed all.
        """
        heads = await self._messages.heads()
        if not any(head.stream == self.stream and head.sequence >= claim for head in heads):
            raise ConnectionLost(f"stream {self.stream} does not show the claim yet")
        there = {other: head for head in heads if (other := _subject_of(head)) is not None}
        ends: dict[Subject, Covered] = {}
        for other, head in there.items():
            if head.origin is not None and head.origin.moved == subject.partition:
                ends[other] = head.covered
            elif other != subject:
                ends[other] = await self._leave(other, subject)
        before = self._subject
        if before is not None and before != subject and before not in there:
            with suppress(Rejected):  # that's fine: the stream was made anew, with fewer subjects
                ends[before] = await self._leave(before, subject)
        return ends

    async def _leave(self, other: Subject, subject: Subject) -> Covered:
        return Covered(await self._store_claim(other, moved=subject.partition), str(self.agent))

    def _last_of_streams(self, ends: Mapping[Subject, Covered]) -> dict[str, Covered]:
        ordered = sorted(ends.items(), key=lambda one: one[1].sequence)
        left = {self._messages.stream_of(other): end for other, end in ordered}
        left.pop(self.stream, None)
        return left

    def _ahead(self, rebuilt: Rebuilt, saved: Positions) -> AgentId | None:
        """Return a newer agent that was there before, by its messages or, where those were purged, by its snapshot.

        Raises `FencedError` where it came later than this one.
        """
        if ahead := self._newest(rebuilt.others.values(), rebuilt.began):
            return ahead
        rival = newest_in(saved)
        if rival is None or rival <= self.agent:
            return None
        if self._subject is not None:
            raise fenced_by(rival, "by its snapshot")
        return rival

    def _newest(self, others: Iterable[HostMessage], began: int = 0) -> AgentId | None:
        """Return the newest of the newer agents, which were there before and had clocks that ran ahead; None where none was.

        Raises `FencedError` for one that came later: by its sequence, or in another stream by when this run `began`.
        """
        newer = [other for other in others if other.agent is not None and other.agent > self.agent]
        for other in newer:
            is_same = other.stream == self._first_stream
            is_later = other.sequence > self._first if is_same else other.stored_at > began
            if self._subject is not None or is_later:
                raise fenced_by(other.agent, other.subject)
        return max((other.agent for other in newer if other.agent is not None), default=None)

    def _name(self, others: Iterable[HostMessage], known: Positions) -> None:
        """Say once of each who else wrote to the host's subjects, for which the session before was lost."""
        for other in others:
            covered, who = known.covered.get(other.stream), str(other.agent or "no agent")
            is_news = covered is None or other.sequence > covered.sequence
            if is_news and who not in self._named and _subject_of(other) is not None:
                self._named.add(who)
                logger.warning(
                    "another client (%s) wrote to %s, which is for this host's shipper only, at sequence %d: claimed again; "
                    "find that client, and give it a subject of its own or take its right to this one",
                    who,
                    other.subject,
                    other.sequence,
                )

    # publishing

    async def _most_payload(self) -> int:
        """Return how many bytes the broker takes at a time; raises `ConfigurationError` where that is too few for a round."""
        most = await largest_payload(self.connection)
        most = min(most, self._largest or most)
        if most < _LEAST_PAYLOAD:
            raise ConfigurationError(
                f"the broker takes {most} bytes at a time, too few for a round; raise its max_payload "
                "and the stream's max_msg_size"
            )
        return most

    async def publish(self, round_: Round) -> int:
        """Return the stream sequence of the round's message once it is on disk, however long that takes.

        Raises `SessionLost`, `ConfigurationError` where the broker takes no round at all.
        """
        while True:
            await self._until_open(round_)
            if self.config.subject != self._subject:
                raise SessionLost("the number of partitions changed")
            try:
                self._last = await self._store(round_)
            except ConnectionLost as error:
                # it is stored or not; sent again with the same sequence it is stored once
                await self.waiting.pause(f"no acknowledgement from the broker: {error}")
            except Rejected as error:
                await self._refused(error, len(round_.payload))
            else:
                self.waiting.over()
                return self._last

    async def publish_unacknowledged(self, round_: Round) -> int:
        """Return 0 once the broker has read the round; what was under way when a connection broke is sent again."""
        await self.waiting.until_answered(lambda: self._send(round_))
        return 0

    async def _until_open(self, round_: Round) -> None:
        """Return when a round may be sent; raises `SessionLost` where it is too large by now."""
        await self.config.until_resumed()
        if len(round_.payload) > (most := await self._most_payload()):
            raise SessionLost(f"the broker takes {most} bytes at a time now")

    async def _send(self, round_: Round) -> None:
        await self._until_open(round_)
        client, subject = await self.connection.client(), str(self.config.subject)
        patience = self._patience(round_.payload)
        sending = self.connection.publish(subject, round_.payload, "", round_.headers)
        await self.connection.guard(sending, patience, subject)
        await self.connection.guard(client.flush(int(patience)), patience, subject)

    async def _store(self, round_: Round) -> int:
        """Send a round and return its sequence; raises `ConnectionLost`, `Rejected`."""
        headers = round_.headers | {EXPECTED_SEQUENCE: str(self._last)}
        fault("sending")
        payload, subject = round_.payload, str(self._subject)
        answer = await self.connection.ask(subject, payload, headers, self._patience(payload))
        fault("stored")
        return stored_at(answer)

    def _patience(self, payload: bytes) -> float:
        """Return the seconds in which a payload gets through a line that is still of use; a dead one is noticed by pings.

        What a server of several sent on to a leader that died is never answered: another server is asked sooner.
        """
        least = _PATIENCE_AMONG if self.connection.has_choice else _PATIENCE
        return least + len(payload) / _SLOWEST

    async def _refused(self, error: Rejected, size: int) -> None:
        if error.is_wrong_sequence:
            raise SessionLost(
                f"{self._subject} does not end at sequence {self._last} any more ({error.description})"
            ) from None
        if (
            error.is_write_under_way
        ):  # of this round, sent before: the next try is refused as stored
            return await self.waiting.pause(f"no acknowledgement from the broker: {error}")
        if error.error == _MESSAGE_TOO_LARGE:
            self._largest = size // 2
            raise SessionLost("the stream takes no message as large") from None
        return await self.waiting.refused(error)


def _require_read(positions: Positions, ends: Mapping[str, Covered]) -> None:
    for stream, end in ends.items():
        covered = positions.covered.get(stream)
        if covered is None or covered.sequence < end.sequence:
            raise ConnectionLost(f"stream {stream} did not give back all of the own lines")


def _subject_of(head: HostMessage) -> Subject | None:
    try:
        return Subject.parse(head.subject)
    except InvalidSubject:
        return None  # a plain client's, no agent's
