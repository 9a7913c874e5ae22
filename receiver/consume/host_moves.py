"""Find out whether hosts that moved here from another partition have to wait for that partition.

A host's own claim only shortens a wait: the broker counts how many messages of the host the other
partition still has to receive. It counts by throw-away consumers, which a receiver of one partition
may make for another one, and never reads.

- A claim waits only for messages that were stored before it. Clocks of servers differ, so it also
  waits for those stored a few seconds later. Two partitions never wait for each other.
- A claim does not wait for a partition that has committed nothing for `Patience.stalled` while
  lines of the host are left there. The host's lines then go on here. One of the two partitions
  writes into a file of another name, if both write into the same folder.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isinf
from typing import Any, NamedTuple

from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client import bucket
from nats_logship.client.answer import is_up_to_date, require_certain
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import Start, StreamReader, at_sequence, at_time
from nats_logship.client.stream_state import StreamState, parse_stream_state
from nats_logship.wire.delivery import Delivery
from nats_logship.wire.message import IMPOSSIBLE_SEQUENCE, Followed
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, StreamLayout, offset_key
from nats_logship.wire.subjects import Subject, count_name, host_filter, partition_filter
from receiver.consume.host_claims import HostClaim, Moves

_LIVES = 10  # seconds for which the broker keeps a consumer that counts
_MOST_ASKED = 64  # hosts in other partitions that are asked about for one batch
_TRIES = 5  # counts while the host goes on writing


class MustWait(Exception):
    """A claim waits until another partition is received up to it; a later attempt asks again."""


class Patience(NamedTuple):
    """How long a claim waits for another partition, in seconds.

    `skew` is by how much the clocks of two streams may differ. `stalled` is for how long the other
    partition may commit nothing while lines of the host are left there. After `examining` the rest
    of the claims waits for the next batch: the broker may be far away.
    """

    skew: float
    stalled: float
    examining: float = 15.0


class _End(NamedTuple):
    """A claim, and the end of its host's lines in one other partition."""

    claim: Delivery
    end: Followed


class _Lagging(Exception):
    """A server has counted that may not have all messages."""


_Left = dict[tuple[str, int], list[_End]]  # by host and other partition


class _Other(NamedTuple):
    """Another partition: its stream and that one's last sequence, how far it is received.

    `reached` is the first sequence to receive; `since` is when it was committed, 0 for never, and
    `now` the time there: both in nanoseconds since the epoch.
    """

    stream: str
    last: int
    reached: int
    since: int
    now: int


@dataclass(slots=True)
class MovesExaminer:
    """Examines claims in partition `partition`, which lives in `stream`."""

    connection: Connection
    partition: int
    stream: str
    layout: StreamLayout
    patience: Patience
    _infos: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    _others: dict[int, _Other] = field(default_factory=dict)

    async def examine(self, claims: Iterable[HostClaim]) -> Moves:
        """Return what to do about claims, which come in the order of their sequences.

        Each stream is asked once for each host, and other partitions only about hosts of which they
        have messages left. Raises `Rejected`, `ConnectionLost`.
        """
        moves, known, left = Moves(), list[HostClaim](), _Left()
        end = asyncio.get_running_loop().time() + self.patience.examining
        for claim in claims:
            is_first = not (known or moves.malformed)
            if not is_first and (len(left) >= _MOST_ASKED or self._is_over(end)):
                moves.until = claim.delivery.sequence
                break
            if (absent := await self._find_absent(claim)) is not None:
                reason = f"Log-Follows names partition {absent}, which does not exist"
                moves.malformed[claim.delivery.sequence] = reason
            else:
                known.append(claim)
                await self._add_left(claim, left)
        reached = dict[tuple[str, int], int | None]()
        for at, ends in left.items():
            if self._is_over(end) and ends[0].claim.sequence > known[0].delivery.sequence:
                moves.until = min(ends[0].claim.sequence, moves.until or IMPOSSIBLE_SEQUENCE)
                break
            reached[at] = await self._find_reached(moves, *at, ends)
        self._add_ends(moves, known, reached)
        return moves

    def _is_over(self, end: float) -> bool:
        return asyncio.get_running_loop().time() >= end

    def _add_ends(
        self,
        moves: Moves,
        known: Sequence[HostClaim],
        reached: Mapping[tuple[str, int], int | None],
    ) -> None:
        for claim in known:
            if moves.until is None or claim.delivery.sequence < moves.until:
                moves.received.setdefault(claim.host, {})
                for end in self._other_ends(claim):
                    moves.add_end(claim.host, end, reached.get((claim.host, end.partition), 0))

    async def _find_absent(self, claim: HostClaim) -> int | None:
        """Return a partition that a claim names and that does not exist, None for none."""
        for end in self._other_ends(claim):
            if not await self._exists(claim, end):
                return end.partition
        return None

    async def _add_left(self, claim: HostClaim, left: _Left) -> None:
        """Note which partitions that a claim names have messages of its host left."""
        for end in self._other_ends(claim):
            info = await self._info(claim.host, end.partition)
            subjects = info["state"].get("subjects") or ()
            if str(Subject(end.partition, claim.host)) in subjects:
                at = claim.host, end.partition
                left.setdefault(at, []).append(_End(claim.delivery, end))

    def _other_ends(self, claim: HostClaim) -> tuple[Followed, ...]:
        return tuple(end for end in claim.follows if end.partition != self.partition)

    async def _exists(self, claim: HostClaim, end: Followed) -> bool:
        """Whether the partition exists; a mirror of another site does not list its subjects."""
        if end.partition < self.layout.partitions:
            return True
        config = (await self._info(claim.host, end.partition))["config"]
        subjects = config.get("subjects") or ()
        return bool(config.get("mirror")) or partition_filter(end.partition) in subjects

    async def _info(self, host: str, partition: int) -> dict[str, Any]:
        """Return the state of a partition's stream, with the subjects of a host."""
        stream = self.layout.stream_of(partition)
        if (found := self._infos.get((stream, host))) is None:
            request = {"subjects_filter": host_filter(host)}
            found = await self.connection.api(f"STREAM.INFO.{stream}", request)
            require_certain(found)
            self._infos[stream, host] = found
        return found

    async def _other(self, host: str, partition: int) -> _Other:
        """Return how far a partition is received in its stream."""
        if (found := self._others.get(partition)) is None:
            info = await self._info(host, partition)
            entry = await bucket.read(self.connection, OFFSETS_BUCKET, offset_key(partition))
            state = parse_stream_state(info)
            found = _Other(
                stream=state.name,
                last=state.until - 1,
                reached=_first_to_receive(entry, state),
                since=parse_time(entry.time) if entry else 0,
                now=parse_time(info["ts"]),
            )
            self._others[partition] = found
        return found

    async def _find_reached(
        self, moves: Moves, host: str, partition: int, ends: Sequence[_End]
    ) -> int | None:
        """Return how far a partition is received, None if its files must not be taken over.

        If a claim has to wait, `moves` ends before the first such claim.
        """
        other = await self._other(host, partition)
        ends = [one for one in ends if moves.until is None or one.claim.sequence < moves.until]
        named = min(max((one.end.sequence for one in ends), default=0), other.last)
        if other.reached > named:
            return other.reached
        claims = [one.claim for one in ends]
        age = (other.now - claims[-1].stored_at) / SECOND - self.patience.skew
        info = await self._info(host, partition)
        may_count = partial(is_up_to_date, info, age=age)
        counter = _Counter(self, other, Subject(partition, host), named, may_count)
        try:
            first = await counter.find_first_waiting(claims)
            is_stalled = first is not None and await counter.is_stalled()
        except _Lagging:
            first, is_stalled = claims[0], False
        if first is None:
            return other.reached
        if is_stalled:
            moves.notices.append(
                f"host {host}: partition {partition} still has older lines of the host, and its "
                f"receiver has committed nothing for {self.patience.stalled:g} s; the host's lines "
                "go on here without them"
            )
            return None
        moves.until = first.sequence
        received = f"it up to sequence {other.reached - 1}" if other.since else "nothing of it"
        moves.reason = (
            f"host {host} was in partition {partition} before, up to sequence {named}; its "
            f"receiver has received {received}"
        )
        return None


@dataclass(slots=True)
class _Counter:
    """Counts the messages of a host that another partition has left, up to sequence `named`.

    A server `may_count` that has all messages that were stored before the claims. Methods raise
    `_Lagging` if another one has counted.
    """

    examiner: MovesExaminer
    other: _Other
    subject: Subject
    named: int
    may_count: Callable[[str], bool]

    async def find_first_waiting(self, claims: Sequence[Delivery]) -> Delivery | None:
        """Return the first claim that has to wait, None for none; all claims behind it wait too."""
        if not await self._has_to_wait(claims[-1]):
            return None
        first, last = 0, len(claims) - 1
        while first < last:
            middle = (first + last) // 2
            if await self._has_to_wait(claims[middle]):
                last = middle
            else:
                first = middle + 1
        return claims[first]

    async def _has_to_wait(self, claim: Delivery) -> bool:
        """Whether messages are left before a claim, also while the host goes on writing there.

        A claim does not wait for a host that writes too fast to be counted: only the host's own
        lines may come into another file then.
        """
        for _ in range(_TRIES):
            at_least = await self._count_behind(claim)
            left = await self._count_from(self.other.reached)
            if left <= at_least:
                return False
            if left > await self._count_behind(claim):
                return True
        return False

    async def _count_behind(self, claim: Delivery) -> int:
        """Count the messages that a claim does not wait for.

        In its own stream they are counted by sequence, in another stream also by time.
        """
        if self.other.stream == self.examiner.stream:
            return await self._count_from(min(self.named + 1, claim.sequence))
        skew = round(self.examiner.patience.skew * SECOND)
        is_old = self.other.now > claim.stored_at + skew
        later = await self._count_since(claim.stored_at + (0 if is_old else skew))
        return max(later, await self._count_from(self.named + 1))

    async def is_stalled(self) -> bool:
        """Whether the partition has committed nothing for as long as lines of the host are left."""
        if isinf(stalled := self.examiner.patience.stalled):
            return False
        long_ago = self.other.now - round(stalled * SECOND)
        if self.other.since > long_ago:
            return False
        recent = await self._count_since(long_ago)
        return await self._count_from(self.other.reached) > recent

    async def _count_from(self, sequence: int) -> int:
        return await self._count(at_sequence(sequence))

    async def _count_since(self, moment: int) -> int:
        return await self._count(at_time(moment))

    async def _count(self, start: Start) -> int:
        reader = StreamReader(
            self.examiner.connection,
            self.other.stream,
            name=count_name(self.examiner.partition),
            filters=(str(self.subject),),
            headers_only=True,
            lives=_LIVES,
        )
        count = await reader.count(start)
        if not self.may_count(reader.server):
            raise _Lagging
        return count


def _first_to_receive(entry: bucket.Entry | None, stream: StreamState) -> int:
    """Return the first sequence to receive; 1 for no entry, or an entry that cannot be read."""
    try:
        offset = Offset.decode(entry.value) if entry else None
    except UnreadableOffset:
        offset = None
    if offset is None:
        return 1
    if offset.stream_created == stream.created:
        return max(offset.next, 1)
    return max(min(offset.next, stream.in_common_with(offset.stream_created) or 1), 1)
