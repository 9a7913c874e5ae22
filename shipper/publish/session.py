"""What an agent has at the broker from one claim of its host's subjects to the loss of it, and the positions that the stream then has.

A first session and one after a lost one begin alike: claim, rebuild, go on. In any doubt everything is asked of the stream
again. The newest start wins: whoever finds a newer agent behind its own first claim ends.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from broker.app.faults import fault
from broker.client import bucket
from broker.client.answer import ConnectionLost, Rejected
from broker.client.bucket import Conflict
from broker.client.connection import Connection
from broker.wire.message import Followed
from broker.wire.positions import Covered, Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from broker.wire.subjects import InvalidSubject, Subject
from shipper.publish.config import BrokerConfig
from shipper.publish.messages import (
    AgentId,
    HostMessage,
    HostMessages,
    Rebuilt,
    fenced_by,
    newest_in,
)
from shipper.publish.publisher import Publisher, largest_payload
from shipper.publish.waiting import Waiting

_MILLISECOND = 1_000_000  # nanoseconds
logger = logging.getLogger(__name__)


class Snapshots:
    """The snapshot of one host's positions, as one agent reads and writes it by compare-and-set.

    It holds what headers of the stream need not be read for again, and what they cannot tell.
    """

    def __init__(self, connection: Connection, host: str) -> None:
        """Remember the host; nothing is asked before `read`."""
        self._connection = connection
        self._key = positions_key(host)
        self._revision = 0
        self._written: Positions | None = None
        self._found = Positions()  # what was written meanwhile, by retention or an older agent
        self._writing = asyncio.Lock()

    async def read(self) -> Positions:
        """Return the positions of the snapshot; none where there is no snapshot, or where it cannot be read, which is logged.

        Raises `Rejected` where there is no such bucket, `ConnectionLost`.
        """
        entry = await bucket.read(self._connection, POSITIONS_BUCKET, self._key)
        self._written = None
        self._revision = entry.revision if entry else 0
        try:
            return Positions.decode(entry.value) if entry else Positions()
        except PositionsUnreadable as error:
            logger.warning(
                "the snapshot %s/%s cannot be read: %s; reading the headers of the whole stream",
                POSITIONS_BUCKET,
                self._key,
                error,
            )
            return Positions()

    async def begin(self, positions: Positions) -> None:
        """Write the first snapshot of a session; raises `ConnectionLost` where the one that was read was not the last one."""
        self._found = Positions()
        try:
            await self._write(positions)
        except Conflict:
            raise ConnectionLost("the snapshot of the positions was written meanwhile") from None

    async def write(self, positions: Positions) -> None:
        """Write the positions, unless they are those last written.

        Raises `FencedError` where a newer agent wrote before, `Rejected`, `ConnectionLost`: then they may be written or not.
        """
        async with self._writing:
            while positions is not self._written:
                try:
                    await self._write(positions)
                except Conflict:
                    # an older agent's came late, our own was not heard of, or retention has completed it with a round whose
                    # acknowledgement was lost: that counts until the next claim, as the message may be purged
                    self._found = await self.read()
                    own, rival = newest_in(positions), newest_in(self._found)
                    if own and rival and rival > own:
                        raise fenced_by(rival, f"{POSITIONS_BUCKET}/{self._key}") from None

    async def try_write(self, positions: Positions) -> None:
        """Write the positions if the broker takes them; a snapshot that cannot be written costs a longer start, and no line.

        Raises `FencedError`.
        """
        try:
            await self.write(positions)
        except (ConnectionLost, Rejected) as error:
            logger.warning(
                "cannot write the snapshot of the positions: %s; a restart reads them back from the stream",
                error,
            )

    async def _write(self, positions: Positions) -> None:
        value = positions.joined(self._found).encode()
        if len(value) > await largest_payload(self._connection):
            raise Rejected(
                413,
                0,
                f"the snapshot of {len(positions.files)} files has {len(value)} bytes, which is larger than the broker takes; "
                "raise its max_payload, or ship fewer files",
            )
        fault("snapshot_sending")
        self._revision = await bucket.write(
            self._connection, POSITIONS_BUCKET, self._key, value, self._revision
        )
        self._written = positions
        fault("snapshot_written")


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
        self.publisher = Publisher(connection, self.config, self.waiting)
        now = clock() // _MILLISECOND
        self.agent = self._run = AgentId.following(None, now, tag or secrets.token_hex(4))
        self.stream, self.max_payload = "", 0
        self._clock = clock
        self._numbers = itertools.count(1)
        self._messages = HostMessages(connection, host, 1)
        self._first_stream, self._first = "", 0  # where the first claim of the run is stored
        self._before: Subject | None = None  # the subject of the session before
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
        self.max_payload = await self.publisher.largest()
        self._messages.streams = self.config.streams
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
        self._before = subject
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
        is_next = bool(known.covered)
        saved = Positions() if is_next else await self.snapshots.read()
        start = known if is_next else saved
        unread = [name for name, last in left.items() if start.covered.get(name) != last]
        rebuilt = await self._messages.rebuild(start, (self.stream, *unread), str(self.agent))
        fault("rebuilt")
        _require_read(rebuilt.positions, {self.stream: Covered(claim, str(self.agent)), **left})
        if is_next:  # behind the stream: retention completes the snapshot, and purges then
            saved = await self.snapshots.read()
        if ahead := self._ahead(rebuilt, saved):
            self.agent = AgentId.following(ahead, self.agent.start, self.agent.tag)
            return await self._attempt(subject, known)
        if self._before is not None:
            self._name(rebuilt.others.values(), start)
        positions = rebuilt.positions.joined(saved)
        if self._before is None or positions.files != known.files:
            await self.snapshots.begin(positions)
        self.publisher.begin(subject, rebuilt.last[str(subject)])
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
        before = self._before
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
        if self._before is not None:
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
            if self._before is not None or is_later:
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
