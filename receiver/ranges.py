"""Which sequences a query of the data source reads: from where, up to where, in which pieces. Decides only.

All partitions are subjects of one stream, so they share its sequences: a limit on a query's batch is a window of
sequences, the same for all partitions, and costs no look at the messages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.exits import OperatorError

__all__ = ["Loss", "Next", "Range", "StreamState", "advance", "between", "split", "without_loss"]

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


def between(start: Next, end: Next) -> list[Range]:
    """Return what there is to read from `start` to `end`; a partition that has no start is not read."""
    return [
        Range(partition, start[partition], until)
        for partition, until in sorted(end.items())
        if partition in start and start[partition] < until
    ]


def without_loss(ranges: Sequence[Range], state: StreamState, fail: bool) -> list[Range]:
    """Return the ranges, begun where the stream now begins if that is later; raise `Loss` instead when `fail`.

    A range behind the end of the stream belongs to another stream, whatever `fail` says: `Loss`.
    """
    kept = []
    for item in ranges:
        if item.until > state.until:
            raise Loss(
                f"sequence {item.until - 1} is not in the stream yet, it ends at {state.until - 1}: the stream was "
                "made anew or went back; start the query with a new checkpoint"
            )
        if item.first < state.first and fail:
            raise Loss(
                f"partition {item.partition}: sequences {item.first} to {min(state.first, item.until) - 1} were "
                "removed from the stream before they were read; set failOnDataLoss to false to go on behind them"
            )
        first = max(item.first, state.first)
        if first < item.until:
            kept.append(Range(item.partition, first, item.until))
    return kept


def split(ranges: Sequence[Range], pieces: int) -> list[Range]:
    """Return the ranges cut into at least `pieces` where their lengths allow it: tasks that run beside each other."""
    if not ranges:
        return []
    each = -(-pieces // len(ranges))
    result = []
    for item in ranges:
        length = -(-(item.until - item.first) // max(1, each))
        for first in range(item.first, item.until, length):
            result.append(Range(item.partition, first, min(first + length, item.until)))
    return result
