"""Claims the subjects of a host for one agent, and rebuilds the positions behind the claim.

The first claim of a run and one after a lost session are the same: claim, read the stream, go on.
The newest start wins: an agent that finds a newer one behind its own first claim ends.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from nats_logship.app.faults import fault
from nats_logship.client.answer import ConnectionLost, Rejected, stored_sequence
from nats_logship.client.connection import Connection
from nats_logship.wire.message import MAX_FOLLOWED, Followed, Origin, encode_origin
from nats_logship.wire.positions import Positions
from nats_logship.wire.subjects import InvalidSubject, Subject
from shipper.publish.messages import (
    HostMessage,
    HostMessages,
    Snapshots,
    fenced_error,
    format_agent_id,
    parse_agent_start,
)

logger = logging.getLogger(__name__)


class Claims:
    """The claims of the run `agent`; `subject` is the claimed one, `last` its last sequence."""

    def __init__(
        self,
        connection: Connection,
        host: str,
        clock: Callable[[], int],
        agent: str,
        snapshots: Snapshots,
    ) -> None:
        """`clock` is nanoseconds since the epoch."""
        self.agent = agent
        self.subject: Subject | None = None
        self.last = 0
        self._connection = connection
        self._clock = clock
        self._snapshots = snapshots
        self._messages = HostMessages(connection, host, 1)
        self._first: tuple[str, int] | None = None  # stream and sequence of the run's first claim
        self._named: set[str] = set()  # other writers that were logged, and this run's own ids

    async def claim(self, subject: Subject, streams: int, known: Positions) -> Positions:
        """Claim `subject` and return the positions as the stream has them then.

        `known` are the positions of the session before; without any the snapshot counts. Raises
        `FencedError` for a newer agent, `ConnectionLost` and `Rejected`.
        """
        self._messages.streams = streams
        ends = await self._claim_all(subject)
        start = known if known.covered else await self._snapshots.read()
        rebuilt = await self._messages.rebuild(start, ends)
        fault("rebuilt")
        # read after the stream: retention completes the snapshot before it purges
        saved = await self._snapshots.read() if known.covered else start
        writers = [(one.stream, one.sequence, one.writer) for one in rebuilt.writers.values()]
        if self._outrank(writers + [("", 0, one.agent) for one in saved.covered.values()]):
            return await self.claim(subject, streams, known)
        if self.subject is not None:
            self._log_writers(rebuilt.writers.values(), start)
        positions = rebuilt.positions.merge(saved)
        if self.subject is None or positions.files != known.files:
            await self._snapshots.write(positions)
            positions = positions.merge(self._snapshots.found)
        self.subject, self.last = subject, rebuilt.last[str(subject)]
        self._named.add(self.agent)
        return positions

    async def _claim_all(self, subject: Subject) -> dict[str, int]:
        """Claim the subject and leave the host's others; return the last sequence per stream."""
        stream = self._messages.stream_of(subject)
        newest = await self._messages.find_last(stream, str(subject))
        # a replica that lags may not show the last message; `rebuild` reads behind the claim
        self._outrank([(newest.stream, newest.sequence, newest.writer)] if newest else [])
        claim = await self._store_claim(subject)
        self._first = self._first or (stream, claim)
        fault("claimed")
        left = await self._leave_others(subject, claim)
        if left:
            fault("left")
            follows = tuple(Followed(other.partition, end) for other, end in left.items())
            for first in range(0, len(follows), MAX_FOLLOWED):
                some = follows[first : first + MAX_FOLLOWED]
                claim = await self._store_claim(subject, follows=some)
        ends = {stream: claim}
        for other, end in left.items():
            stream = self._messages.stream_of(other)
            ends[stream] = max(end, ends.get(stream, 0))
        return ends

    def _outrank(self, writers: Iterable[tuple[str, int, str]]) -> bool:
        """Take an id above those of earlier agents whose clocks ran ahead; return whether any did.

        `writers` are the stream and the sequence of a message, and the agent that wrote it. Raises
        `FencedError` for a later agent: one behind the first claim of this run, or any newer one
        once this run had a session.
        """
        before = self.agent
        for stream, sequence, agent in writers:
            start = parse_agent_start(agent)
            if start is None or agent <= self.agent:
                continue
            is_later = self._first and stream == self._first[0] and sequence > self._first[1]
            if self.subject is not None or is_later:
                raise fenced_error(agent)
            self.agent = format_agent_id(start + 1, before[-8:])
        return self.agent != before

    async def _store_claim(
        self, subject: Subject, *, follows: tuple[Followed, ...] = (), moved: int | None = None
    ) -> int:
        """Store an empty message, which locks out older agents, and return its sequence.

        The message names the partitions that had the host's lines before (`follows`), or the one
        that has them now (`moved`). After `ConnectionLost` the message may be stored or not; a
        second claim does no harm.
        """
        origin = Origin(self.agent, self._clock(), follows=follows, moved=moved)
        return stored_sequence(await self._connection.ask(str(subject), b"", encode_origin(origin)))

    async def _leave_others(self, subject: Subject, claim: int) -> dict[Subject, int]:
        """Claim each other subject that the host had, and store there that its lines have moved.

        An older agent may still publish there. Returns where the host's lines end on each: the
        receiver of the new partition writes nothing before these lines are received.
        """
        stream = self._messages.stream_of(subject)
        heads = await self._messages.read_last()
        if not any(head.stream == stream and head.sequence >= claim for head in heads):
            raise ConnectionLost(f"stream {stream} does not show the claim yet")
        left: dict[Subject, int] = {}
        for head in heads:
            other = _subject_of(head)
            if other is None or other == subject:
                continue
            if head.origin is not None and head.origin.moved == subject.partition:
                left[other] = head.sequence
            else:
                left[other] = await self._store_claim(other, moved=subject.partition)
        before = self.subject
        if before is not None and before != subject and before not in left:
            # retention has removed all messages of the subject; a recreated stream may lack it
            with suppress(Rejected):
                left[before] = await self._store_claim(before, moved=subject.partition)
        return left

    def _log_writers(self, writers: Iterable[HostMessage], known: Positions) -> None:
        """Log, once each, the other clients for whose messages the last session was lost."""
        for other in writers:
            covered, name = known.covered.get(other.stream), other.writer or "no agent"
            is_new = covered is None or other.sequence > covered.sequence
            if is_new and name not in self._named and _subject_of(other) is not None:
                self._named.add(name)
                logger.warning(
                    "another client (%s) published to %s at sequence %d, which only this host's "
                    "shipper may use: claimed again; give that client another subject, or revoke "
                    "its right to this one",
                    *(name, other.subject, other.sequence),
                )


def _subject_of(head: HostMessage) -> Subject | None:
    try:
        return Subject.parse(head.subject)
    except InvalidSubject:
        return None  # another client's subject, on which no shipper publishes
