"""What all receivers have, by their committed offsets and by the acknowledgements of other consumers. Decides only.

In any doubt a message counts as not received.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker.wire.descent import Ancestor
from broker.wire.offset import Offset
from broker.wire.subjects import consumer_name, partition_filter

__all__ = ["Frontier", "Hold", "Received", "Segment", "frontier", "holds"]

_MILLISECOND = 1_000_000  # nanoseconds; entries hold times cut to it
_STREAM_NOT_BELOW = 1
_THROW_AWAY = re.compile(r"shipper-.+|wake-p\d+-.+")


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a partition is received: every message below sequence `until` that was stored before `stored_before`.

    The time is in nanoseconds since the epoch. What is younger than the last committed message was never committed,
    whatever its sequence says: a stream that lost its end gives numbers out again, and a person can move an offset.
    """

    partition: int
    until: int
    stored_before: int


def frontier(
    partition: int,
    offset: Offset | None,
    created: str,
    until: int,
    restored_from: Iterable[Ancestor] = (),
) -> Frontier | None:
    """Return how far a partition is received; None where nothing is, or nobody can tell.

    `created` is when the stream was made, `until` where it ends: an offset of another stream, or beyond this one's end,
    says nothing about what is in it, but for what they have in common where this one was restored from the other.
    Whether its owner lives, or has released it, makes no difference.
    """
    if offset is None:
        return None
    known = {one.created: one.until for one in restored_from}
    common = known.get(offset.stream_created)
    if offset.stream_created == created:
        end = offset.next if offset.next <= until else None
    else:
        end = None if common is None else min(offset.next, common)
    if end is None:
        return None
    try:
        stored = datetime.fromisoformat(offset.last_time)
    except ValueError:
        return None  # nothing was ever committed
    if stored.tzinfo is None:
        return None
    before = round(stored.timestamp() * 1000) * _MILLISECOND + _MILLISECOND
    return Frontier(partition, end, before)


@dataclass(frozen=True, slots=True)
class Hold:
    """Messages of a subject filter above sequence `floor` that somebody has yet to acknowledge."""

    filter: str
    floor: int

    def keeps(self, subject: str, sequence: int) -> bool:
        """Whether a message is held."""
        return sequence > self.floor and _matches(self.filter, subject)


def _matches(pattern: str, subject: str) -> bool:
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted = wanted[:-1]
        if len(tokens) <= len(wanted):
            return False
        tokens = tokens[: len(wanted)]
    return len(wanted) == len(tokens) and all(
        want in {"*", token} for want, token in zip(wanted, tokens, strict=True)
    )


def holds(consumers: Iterable[Mapping[str, Any]], partitions: Iterable[int]) -> tuple[Hold, ...]:
    """Return what durable consumers with acknowledgements hold back, by what CONSUMER.LIST tells of them.

    Those of the receivers of `partitions` are left out: what counts is their offset. A consumer that ends with its
    client holds nothing back, nor does one that acknowledges nothing, or that bears the name of one that ought to: a host
    could fill the stream by it for ever.
    """
    ours = {consumer_name(partition) for partition in partitions}
    return tuple(
        Hold(pattern, int(info["ack_floor"]["stream_seq"]))
        for info in consumers
        if info["name"] not in ours
        and not _THROW_AWAY.fullmatch(info["name"])
        and info["config"].get("durable_name")
        and info["config"].get("ack_policy", "none") != "none"
        for pattern in _filters(info["config"])
    )


def _filters(config: Mapping[str, Any]) -> Sequence[str]:
    return config.get("filter_subjects") or [config.get("filter_subject") or ">"]


@dataclass(frozen=True, slots=True)
class Segment:
    """The stream's sequences `[first, until)`, of which the subjects of these partitions are received."""

    first: int
    until: int
    partitions: tuple[int, ...]

    @property
    def filters(self) -> list[str]:
        """The subject filters that take in what is received."""
        return [partition_filter(partition) for partition in self.partitions]


@dataclass(frozen=True, slots=True)
class Received:
    """All that is known of what receivers have, by partition, and what others hold back."""

    frontiers: Mapping[int, Frontier]
    holds: tuple[Hold, ...] = ()

    def has(self, partition: int | None, subject: str, sequence: int, stored_at: int) -> bool:
        """Whether all receivers have a message; `stored_at` is in nanoseconds since the epoch."""
        reached = None if partition is None else self.frontiers.get(partition)
        if reached is None or sequence >= reached.until or stored_at >= reached.stored_before:
            return False
        return not any(hold.keeps(subject, sequence) for hold in self.holds)

    def segments(self, first: int) -> list[Segment]:
        """Return where received messages may be, oldest first, from a stream's first sequence on.

        Where a receiver is far behind the others its messages are in no segment beyond its offset: they may be nearly
        all that the stream holds, and need not be looked at for the sake of the others'.
        """
        begin, found = max(first, _STREAM_NOT_BELOW), []
        for until in sorted({one.until for one in self.frontiers.values()}):
            if until <= begin:
                continue
            there = sorted(n for n, one in self.frontiers.items() if one.until >= until)
            found.append(Segment(begin, until, tuple(there)))
            begin = until
        return found
