"""Hosts whose lines moved here from another partition, and must wait for those before them.

A claim with `Log-Follows` says so (docs/protocol.md). The host's word only shortens a wait: what
the other partition still holds of the host is counted by the broker, by throw-away consumers that a
receiver of one partition may make and not read.

- Nobody waits for what was stored later than the claim, except for a few seconds, since clocks of
  servers differ. So two partitions never wait for each other.
- Nobody waits for long for a partition that commits nothing while lines of the host are left there
  (`Patience.stalled`). The host's lines then go on here, and the older ones come into another file,
  which is marked.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isinf
from typing import Any, NamedTuple

from nats_logship.app.timestamps import SECOND, parse_time
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, is_certain, replicas_in_touch
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import Start, StreamReader, at_sequence, at_time
from nats_logship.client.stream_state import StreamState, parse_stream_state
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.message import (
    IMPOSSIBLE_SEQUENCE,
    Followed,
    MalformedMessage,
    Origin,
    decode_origin,
)
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, StreamLayout, offset_key
from nats_logship.wire.subjects import (
    InvalidHost,
    InvalidSubject,
    Subject,
    count_name,
    host_filter,
    partition_filter,
)
from receiver.consume.judging import host_of
from receiver.consume.wake import is_level

_LIVES = 10  # seconds for which the broker keeps a consumer that counts
_MOST_ASKED = 64  # hosts in other partitions that are asked about for one batch
_TRIES = 5  # counts of what is left while the host goes on writing
_CAUGHT_UP, _MOST_LAG = 10, 1_000  # seconds and entries by which a replica in touch may lag


class MustWait(Exception):
    """The other partition has not come so far; a later attempt finds out whether it has by then."""


class HostClaim(NamedTuple):
    """A claim of a host, and where its lines ended in other partitions, as the host says."""

    host: str
    delivery: Delivery
    follows: tuple[Followed, ...]


class Patience(NamedTuple):
    """How long a claim waits for another partition, in seconds.

    `skew` is by how much the clocks of two streams may differ, and for how long after the claim
    this counts. `still` is for how long the other partition may commit nothing while lines of the
    host are left there. After `examining` the rest of the claims waits for the next batch: the
    broker may be far away.
    """

    skew: float
    stalled: float
    examining: float = 15.0


class Received(NamedTuple):
    """The end of a host's lines in another partition, and how far that was received.

    `reached` is 0 if nobody received it or no message of the host is left there, None if its files
    are not to be taken over.
    """

    end: Followed
    reached: int | None


@dataclass(slots=True)
class Moves:
    """What was found of the claims in some messages.

    `received` is by host and other partition: what can be taken over from there. `malformed` has
    the reason by the sequence of a claim. A batch ends before sequence `until`, if there is one;
    the claim there has to wait where there is a `reason`. `notices` are for the log.
    """

    received: dict[str, dict[int, Received]] = field(default_factory=dict)
    malformed: dict[int, str] = field(default_factory=dict)
    until: int | None = None
    reason: str = ""
    notices: list[str] = field(default_factory=list)

    def require_sound(self, claim: Delivery) -> None:
        """Raise `MalformedMessage` for a claim that names what does not exist."""
        if reason := self.malformed.get(claim.sequence):
            raise MalformedMessage(reason)

    def take_over(self, host: str, end: Followed, reached: int | None) -> None:
        """Note how far a partition was received; the highest end that a claim names counts."""
        ends = self.received[host]
        before = ends.get(end.partition)
        if before is None or before.end.sequence < end.sequence:
            ends[end.partition] = Received(end, reached)


def read_follows(message: RawMessage) -> tuple[Followed, ...]:
    """Return the ends of a host's lines in other partitions that a message says it follows."""
    origin = _origin(message, b"Log-Follows")
    return origin.follows if origin else ()


def read_destination(message: RawMessage) -> int | None:
    """Return the partition to which the host of a message has gone, None where it says nothing of that."""
    origin = _origin(message, b"Log-Moved")
    return origin.moved if origin else None


def _origin(message: RawMessage, header: bytes) -> Origin | None:
    if header not in message.head:  # as nearly always: it costs nothing
        return None
    with suppress(MalformedMessage):  # that's fine: it is set aside when its turn comes
        return decode_origin(message.headers)
    return None


def claims_in(messages: Iterable[tuple[Delivery, RawMessage]]) -> Iterator[HostClaim]:
    """Yield the claims among messages that follow the lines of other partitions."""
    for delivery, message in messages:
        if ends := read_follows(message):
            with suppress(InvalidHost, InvalidSubject):  # that's fine: it is set aside
                yield HostClaim(host_of(message.subject), delivery, ends)


class _End(NamedTuple):
    """A claim, and the end of its host's lines in one other partition."""

    claim: Delivery
    end: Followed


_Left = dict[tuple[str, int], list[_End]]  # by host and other partition


class _Other(NamedTuple):
    """Another partition: its stream, the first sequence to receive, since when (nanoseconds)."""

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
        """Return what is to be done about claims, which come in the order of their sequences.

        Each stream is asked once for each host, and other partitions only about hosts of which
        there are messages left. Raises `Rejected`, `ConnectionLost`.
        """
        moves, known, left = Moves(), list[HostClaim](), _Left()
        end = asyncio.get_running_loop().time() + self.patience.examining
        for claim in claims:
            is_first = not (known or moves.malformed)
            if not is_first and (len(left) >= _MOST_ASKED or self._is_over(end)):
                moves.until = claim.delivery.sequence
                break
            if (absent := await self._absent(claim)) is not None:
                reason = f"Log-Follows names partition {absent}, which does not exist"
                moves.malformed[claim.delivery.sequence] = reason
            else:
                known.append(claim)
                await self._note(claim, left)
        reached = dict[tuple[str, int], int | None]()
        for at, ends in left.items():
            if self._is_over(end) and ends[0].claim.sequence > known[0].delivery.sequence:
                moves.until = min(ends[0].claim.sequence, moves.until or IMPOSSIBLE_SEQUENCE)
                break
            reached[at] = await self._received(moves, *at, ends)
        self._note_received(moves, known, reached)
        return moves

    def _is_over(self, end: float) -> bool:
        return asyncio.get_running_loop().time() >= end

    def _note_received(
        self,
        moves: Moves,
        known: Sequence[HostClaim],
        reached: Mapping[tuple[str, int], int | None],
    ) -> None:
        for claim in known:
            if moves.until is None or claim.delivery.sequence < moves.until:
                moves.received.setdefault(claim.host, {})
                for end in self._ends(claim):
                    at = claim.host, end.partition
                    moves.take_over(claim.host, end, reached.get(at, 0))

    async def _absent(self, claim: HostClaim) -> int | None:
        """Return a partition that a claim names and that does not exist, None for none."""
        for end in self._ends(claim):
            if not await self._exists(claim, end):
                return end.partition
        return None

    async def _note(self, claim: HostClaim, left: _Left) -> None:
        """Note of which partitions that a claim names there are messages left of its host."""
        for end in self._ends(claim):
            info = await self._info(claim.host, end.partition)
            subjects = info["state"].get("subjects") or ()
            if str(Subject(end.partition, claim.host)) in subjects:
                at = claim.host, end.partition
                left.setdefault(at, []).append(_End(claim.delivery, end))

    def _ends(self, claim: HostClaim) -> tuple[Followed, ...]:
        return tuple(end for end in claim.follows if end.partition != self.partition)

    async def _exists(self, claim: HostClaim, end: Followed) -> bool:
        """Whether there is such a partition; a copy of another site does not tell which."""
        if end.partition < self.layout.partitions:
            return True
        config = (await self._info(claim.host, end.partition))["config"]
        subjects = config.get("subjects") or ()
        return bool(config.get("mirror")) or partition_filter(end.partition) in subjects

    async def _info(self, host: str, partition: int) -> dict[str, Any]:
        stream = self.layout.stream_of(partition)
        if (found := self._infos.get((stream, host))) is None:
            request = {"subjects_filter": host_filter(host)}
            found = await self.connection.api(f"STREAM.INFO.{stream}", request)
            if not is_certain(found):
                raise ConnectionLost(f"stream {stream} has no leader that is sure of it")
            self._infos[stream, host] = found
        return found

    async def _other(self, host: str, partition: int) -> _Other:
        """Return how far a partition is received in its stream, which may have been restored."""
        if (found := self._others.get(partition)) is None:
            info = await self._info(host, partition)
            entry = await bucket.read(self.connection, OFFSETS_BUCKET, offset_key(partition))
            state, since = parse_stream_state(info), parse_time(entry.time) if entry else 0
            reached, now = _reached(entry, state), parse_time(info["ts"])
            found = _Other(state.name, state.until - 1, reached, since, now)
            self._others[partition] = found
        return found

    async def _received(
        self, moves: Moves, host: str, partition: int, ends: Sequence[_End]
    ) -> int | None:
        """Return how far a partition is received, None if its files are not to be taken over.

        Notes the first of the claims that has to wait for it, if one has to.
        """
        other = await self._other(host, partition)
        ends = [one for one in ends if moves.until is None or one.claim.sequence < moves.until]
        named = min(max((one.end.sequence for one in ends), default=0), other.last)
        if other.reached > named:
            return other.reached
        claims = [one.claim for one in ends]
        counted = _Counted(self, other, Subject(partition, host), named)
        if not _can_count(await self._info(host, partition), claims[-1], other.now):
            first = claims[0]
        elif (waiting := await counted.first_waiting(claims)) is None:
            return other.reached
        else:
            first = waiting
        if await counted.is_stalled():
            moves.notices.append(
                f"host {host}: partition {partition} still has older lines of the host, and its "
                f"receiver has committed nothing for {self.patience.stalled:g} s; the host's lines "
                "go on here without them"
            )
            return None
        moves.until = first.sequence
        words = f"it up to sequence {other.reached - 1}" if other.since else "nothing of it"
        moves.reason = (
            f"host {host} was in partition {partition} before, up to sequence {named}; its "
            f"receiver has received {words}"
        )
        return None


@dataclass(slots=True)
class _Counted:
    """Counts what another partition has left of a host, up to the sequence it `named`."""

    examiner: MovesExaminer
    other: _Other
    subject: Subject
    named: int

    async def first_waiting(self, claims: Sequence[Delivery]) -> Delivery | None:
        """Return the first claim that has to wait; those behind it have to, too. None for none."""
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
        """Whether there is anything left before a claim, also while the host goes on writing there.

        A host that writes so fast that this cannot be told is not waited for: nobody's lines but
        its own may go elsewhere.
        """
        for _ in range(_TRIES):
            at_least = await self._behind(claim)
            left = await self._from(self.other.reached)
            if left <= at_least:
                return False
            if left > await self._behind(claim):
                return True
        return False

    async def _behind(self, claim: Delivery) -> int:
        """Count what a claim does not wait for: by sequence, in another stream also by time."""
        if self.other.stream == self.examiner.stream:
            return await self._from(min(self.named + 1, claim.sequence))
        skew = round(self.examiner.patience.skew * SECOND)
        is_old = self.other.now > claim.stored_at + skew
        later = await self._since(claim.stored_at + (0 if is_old else skew))
        return max(later, await self._from(self.named + 1))

    async def is_stalled(self) -> bool:
        """Whether it has committed nothing for `still`, with lines of the host left for as long."""
        if isinf(still := self.examiner.patience.stalled):
            return False
        long_ago = self.other.now - round(still * SECOND)
        if self.other.since > long_ago:
            return False
        recent = await self._since(long_ago)
        return await self._from(self.other.reached) > recent

    async def _from(self, sequence: int) -> int:
        return await self._count(at_sequence(sequence))

    async def _since(self, moment: int) -> int:
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
        return await reader.count(start)


def _can_count(info: Mapping[str, Any], claim: Delivery, now: int) -> bool:
    """Whether each replica that may count has all that was stored before a claim."""
    lags = [one.get("lag", 0) for one in replicas_in_touch(info)]
    is_old = now > claim.stored_at + _CAUGHT_UP * SECOND
    return is_level(info) or (is_old and max(lags, default=0) < _MOST_LAG)


def _reached(entry: bucket.Entry | None, stream: StreamState) -> int:
    """Return the first sequence to receive; 1 for no entry, or one that cannot be read."""
    try:
        offset = Offset.decode(entry.value) if entry else None
    except UnreadableOffset:
        offset = None
    if offset is None:
        return 1
    if offset.stream_created == stream.created:
        return max(offset.next, 1)
    return max(min(offset.next, stream.in_common_with(offset.stream_created) or 1), 1)
