"""Which sequences a query of the data source reads: from where, up to where, in which pieces. Decides only.

All partitions are subjects of one stream, so they share its sequences: a limit on a query's batch is a window of
sequences, the same for all partitions, and costs no look at the messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from broker.exits import OperatorError

__all__ = [
    "Loss",
    "Next",
    "Range",
    "StreamState",
    "advance",
    "between",
    "joined",
    "refuse_rewind",
    "split",
    "without_loss",
]

Next = Mapping[int, int]
"""For each partition the next sequence to read."""


class Loss(OperatorError):
    """Sequences that the query still had to read are not in the stream any more."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences `[first, until)` of the stream, of which those of one partition are to be read."""

    partition: int
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream holds: sequences `[first, until)`, `messages` of them still there, `size` bytes in all."""

    first: int
    until: int
    messages: int
    size: int

    def window_of(self, size: int) -> int:
        """Return how many sequences hold about `size` bytes, by the average of what is stored; at least one."""
        return max(1, size * self.messages // max(1, self.size))


def advance(start: Next, target: int, window: int | None) -> dict[int, int]:
    """Return where a batch ends that begins at `start`: at `target`, but at most `window` sequences on.

    The window begins at the partition that is furthest behind; nothing ever goes back.
    """
    if not start:
        return {}
    limit = target if window is None else min(target, min(start.values()) + window)
    return {partition: max(first, limit) for partition, first in sorted(start.items())}


def joined(start: Next, partitions: Iterable[int]) -> dict[int, int]:
    """Return where each of `partitions` is to be read on: one that came into being since begins with the furthest behind.

    It had no messages before then, so nothing of it lies further back.
    """
    furthest = min(start.values(), default=1)
    return {partition: start.get(partition, furthest) for partition in sorted(partitions)}


def between(start: Next, end: Next) -> list[Range]:
    """Return what there is to read from `start` to `end`."""
    return [
        Range(partition, first, end[partition])
        for partition, first in joined(start, end).items()
        if first < end[partition]
    ]


def without_loss(ranges: Sequence[Range], state: StreamState, fail: bool) -> list[Range]:
    """Return the ranges, begun where the stream now begins if that is later; raise `Loss` instead when `fail`."""
    kept = []
    for item in ranges:
        if item.first < state.first and fail:
            raise Loss(
                f"partition {item.partition}: sequences {item.first} to {min(state.first, item.until) - 1} were "
                "removed from the stream before they were read; set failOnDataLoss to false to go on behind them"
            )
        first = max(item.first, state.first)
        if first < item.until:
            kept.append(Range(item.partition, first, item.until))
    return kept


def refuse_rewind(position: Next, state: StreamState) -> None:
    """Raise `Loss` when a position lies behind the end of the stream: it belongs to another stream of that name."""
    for partition, sequence in sorted(position.items()):
        if sequence > state.until:
            raise Loss(
                f"partition {partition}: the stream ends at sequence {state.until - 1}, before {sequence - 1}: it was "
                "made anew or went back; correct the offsets, or start the query with a new checkpoint"
            )


def split(ranges: Sequence[Range], pieces: int) -> list[Range]:
    """Return the ranges cut into at least `pieces` of about one length, where there are as many sequences."""
    length = max(1, sum(item.until - item.first for item in ranges) // pieces)
    return [
        Range(item.partition, first, min(first + length, item.until))
        for item in ranges
        for first in range(item.first, item.until, length)
    ]
