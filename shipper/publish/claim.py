"""The claim of this agent on all subjects of its host, and the positions that the stream then has.

Made when a session is opened, and again with the same agent id when one is opened after another was lost. In any doubt
everything is asked of the stream again. The newest start wins: whoever finds a newer agent behind its own first claim ends.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from broker.app.faults import fault
from broker.client.connection import ConnectionLost, Rejected
from broker.wire.message import Followed
from broker.wire.positions import Covered, Positions
from broker.wire.subjects import InvalidSubject, Subject
from shipper.publish.messages import (
    AgentId,
    HostMessage,
    HostMessages,
    Rebuilt,
    fenced_by,
    newest_in,
)
from shipper.publish.snapshots import Snapshots
from shipper.publish.waiting import Waiting

__all__ = ["Claimant", "Ownership"]

_MILLISECOND = 1_000_000  # nanoseconds
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ownership:
    """What an agent owns by a claim: its subject, whose last sequence is `last`, and the positions of every file."""

    agent: AgentId
    subject: Subject
    last: int
    positions: Positions


class Claimant:
    """Claims the host for one agent; `agent` is its id, None before its first claim."""

    def __init__(
        self,
        messages: HostMessages,
        snapshots: Snapshots,
        waiting: Waiting,
        tag: str,
        clock: Callable[[], int],
    ) -> None:
        """Claim nothing yet; `tag` is eight random hex digits, `clock` nanoseconds since the epoch."""
        self.agent: AgentId | None = None
        self._messages = messages
        self._snapshots = snapshots
        self._waiting = waiting
        self._tag = tag
        self._clock = clock
        self._stream, self._first = "", 0  # the place of the first claim
        self._before: Subject | None = None  # the subject of the session before
        self._named: set[str] = set()

    async def claim(self, subject: Subject, known: Positions) -> Ownership:
        """Claim all subjects of the host, this one for its lines, and rebuild the positions, however long the broker takes.

        `known` are the positions of the session before; where there are none the snapshot counts. Raises `FencedError`.
        """
        owned = await self._waiting.until_answered(lambda: self._attempt(subject, known))
        self._before = subject
        return owned

    async def _attempt(self, subject: Subject, known: Positions) -> Ownership:
        agent, claim = await self._claim(subject)
        fault("claimed")
        ends = await self._leave_others(subject, agent, claim)
        if ends:
            fault("left")
            follows = tuple(Followed(other.partition, end.sequence) for other, end in ends.items())
            claim = await self._messages.claim(subject, agent, self._clock(), follows=follows)
        own = self._messages.stream_of(subject)
        left = self._last_of_streams(ends, own)
        is_next = bool(known.covered)
        saved = Positions() if is_next else await self._snapshots.read()
        start = known if is_next else saved
        unread = [name for name, last in left.items() if start.covered.get(name) != last]
        rebuilt = await self._messages.rebuild(start, (own, *unread), str(agent))
        fault("rebuilt")
        _require_read(rebuilt.positions, {own: Covered(claim, str(agent)), **left})
        if is_next:  # behind the stream: retention completes the snapshot, and purges then
            saved = await self._snapshots.read()
        if ahead := self._ahead_of(agent, rebuilt, saved):
            self.agent = AgentId.following(ahead, agent.start, self._tag)
            return await self._attempt(subject, known)
        if self._before is not None:
            self._name(rebuilt.others.values(), start)
        positions = rebuilt.positions.joined(saved)
        if self._before is None or positions.files != known.files:
            await self._snapshots.begin(positions)
        return Ownership(agent, subject, rebuilt.last[str(subject)], positions)

    async def _claim(self, subject: Subject) -> tuple[AgentId, int]:
        """Claim the subject for its lines, above the agent of its last message; raises `FencedError` where that one came later.

        A replica that lags may not show the last message: what is rebuilt behind the claim does.
        """
        newest = await self._messages.newest(subject)
        if (agent := self.agent) is not None:
            self._newest_of(agent, [newest] if newest else [])
            return agent, await self._messages.claim(subject, agent, self._clock())
        now = self._clock() // _MILLISECOND
        agent = AgentId.following(newest.agent if newest else None, now, self._tag)
        claim = await self._messages.claim(subject, agent, self._clock())
        self.agent, self._first = agent, claim
        self._stream = self._messages.stream_of(subject)
        return agent, claim

    async def _leave_others(
        self, subject: Subject, agent: AgentId, claim: int
    ) -> dict[Subject, Covered]:
        """Claim the subjects that the host had with other numbers of partitions, and say on each that its lines have moved.

        An older agent may still publish there. Returns where the host's lines end on each: the receiver of this partition
        writes nothing before they are received. Of the subject of the session before retention may have removed all.
        """
        own = self._messages.stream_of(subject)
        heads = await self._messages.heads()
        if not any(head.stream == own and head.sequence >= claim for head in heads):
            raise ConnectionLost(f"stream {own} does not show the claim yet")
        there = {other: head for head in heads if (other := _subject_of(head)) is not None}
        ends: dict[Subject, Covered] = {}
        for other, head in there.items():
            if head.origin is not None and head.origin.moved == subject.partition:
                ends[other] = head.covered
            elif other != subject:
                ends[other] = await self._leave(other, agent, subject)
        before = self._before
        if before is not None and before != subject and before not in there:
            with suppress(Rejected):  # that's fine: the stream was made anew, with fewer subjects
                ends[before] = await self._leave(before, agent, subject)
        return ends

    async def _leave(self, other: Subject, agent: AgentId, subject: Subject) -> Covered:
        moved = subject.partition
        end = await self._messages.claim(other, agent, self._clock(), moved=moved)
        return Covered(end, str(agent))

    def _last_of_streams(self, ends: Mapping[Subject, Covered], own: str) -> dict[str, Covered]:
        left: dict[str, Covered] = {}
        for other, end in sorted(ends.items(), key=lambda one: one[1].sequence):
            if (stream := self._messages.stream_of(other)) != own:
                left[stream] = end
        return left

    def _ahead_of(self, agent: AgentId, rebuilt: Rebuilt, saved: Positions) -> AgentId | None:
        """Return a newer agent that was there before, by its messages or, where those were purged, by its snapshot.

        Raises `FencedError` where it came later than this one.
        """
        if ahead := self._newest_of(agent, rebuilt.others.values(), rebuilt.began):
            return ahead
        rival = newest_in(saved)
        if rival is None or rival <= agent:
            return None
        if self._before is not None:
            raise fenced_by(rival, "by its snapshot")
        return rival

    def _newest_of(
        self, agent: AgentId, others: Iterable[HostMessage], began: int = 0
    ) -> AgentId | None:
        """Return the newest of the newer agents, which were there before and had clocks that ran ahead; None where none was.

        Raises `FencedError` for one that came later: by its sequence, or in another stream by when this run `began`.
        """
        newer = [other for other in others if other.agent is not None and other.agent > agent]
        for other in newer:
            if self.agent is not None and self._is_later(other, began):
                raise fenced_by(other.agent, other.subject)
        return max((other.agent for other in newer if other.agent is not None), default=None)

    def _is_later(self, other: HostMessage, began: int) -> bool:
        if self._before is not None:
            return True
        if other.stream == self._stream:
            return other.sequence > self._first
        return other.stored_at > began

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
