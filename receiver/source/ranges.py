"""Which sequences a query of the data source reads: from where, up to where, in which pieces. Decides only.

All subjects are of one stream, so they share its sequences: a limit on a query's batch is a window of sequences, the
same for all of them, and costs no look at the messages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from broker.app.exits import OperatorError
from receiver.source.patterns import named

__all__ = [
    "Loss",
    "Next",
    "Range",
    "StreamState",
    "advance",
    "between",
    "joined",
    "refuse_rewind",
    "returned",
    "split",
    "without_loss",
]

Next = Mapping[str, int]
"""For each subject filter the next sequence to read."""


class Loss(OperatorError):
    """Sequences that the query still had to read are not in the stream any more."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences `[first, until)` of the stream, of which those that a subject filter takes in are to be read."""

    subject: str
    first: int
    until: int


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a stream holds: sequences `[first, until)`, `messages` of them still there, `size` bytes in all.

    `created` is when it was made, in microseconds since 1970: another stream of the same name has another.
    """

    first: int
    until: int
    messages: int
    size: int
    created: int = 0

    def window_of(self, size: int) -> int:
        """Return how many sequences hold about `size` bytes, by the average of what is stored; at least one."""
        return max(1, size * self.messages // max(1, self.size))


def advance(start: Next, target: int, window: int | None) -> dict[str, int]:
    """Return where a batch ends that begins at `start`: at `target`, but at most `window` sequences on.

    The window begins at the subject that is furthest behind; nothing ever goes back.
    """
    if not start:
        return {}
    limit = target if window is None else min(target, min(start.values()) + window)
    return {subject: max(first, limit) for subject, first in start.items()}


def joined(start: Next, subjects: Iterable[str]) -> dict[str, int]:
    """Return where each of `subjects` is to be read on: one that came into being since begins with the furthest behind.

    It had no messages before then, so nothing of it lies further back.
    """
    furthest = min(start.values(), default=1)
    return {subject: start.get(subject, furthest) for subject in subjects}


def between(start: Next, end: Next) -> list[Range]:
    """Return what there is to read from `start` to `end`."""
    return [
        Range(subject, first, end[subject])
        for subject, first in joined(start, end).items()
        if first < end[subject]
    ]


def without_loss(ranges: Sequence[Range], state: StreamState, fail: bool) -> list[Range]:
    """Return the ranges, begun where the stream now begins if that is later; raise `Loss` instead when `fail`."""
    kept = []
    for item in ranges:
        if item.first < state.first and fail:
            raise Loss(
                f"{named(item.subject)}: sequences {item.first} to {min(state.first, item.until) - 1} were "
                "removed from the stream before they were read; set failOnDataLoss to false to go on behind them"
            )
        first = max(item.first, state.first)
        if first < item.until:
            kept.append(replace(item, first=first))
    return kept


def refuse_rewind(position: Next, state: StreamState) -> None:
    """Raise `Loss` when a position lies behind the end of the stream: it belongs to another stream of that name."""
    for subject, sequence in position.items():
        if sequence > state.until:
            raise Loss(
                f"{named(subject)}: the stream ends at sequence {state.until - 1}, before {sequence - 1}: it was "
                "made anew or went back; correct the offsets, or start the query with a new checkpoint"
            )


def returned(position: Next, created: int, state: StreamState, fail: bool) -> dict[str, int] | None:
    """Return where to read on in a stream that is not the one that `position` is of; None while it is.

    `created` is the stream's that was read, 0 where that is not known. A stream made anew is read from its beginning, one
    that went back (restored from a backup) from its end, since what it holds was read. Raises `Loss` instead when `fail`.
    """
    if created and created != state.created:
        if fail:
            raise Loss(
                f"the stream was made anew at {_time(state.created)}; that of {_time(created)}, which this query has "
                "read, is gone: start with a new checkpoint, or set failOnDataLoss to false to begin with the new one"
            )
        return dict.fromkeys(position, state.first)
    if all(sequence <= state.until for sequence in position.values()):
        return None
    if fail:
        refuse_rewind(position, state)
    return {subject: min(sequence, state.until) for subject, sequence in position.items()}


def split(ranges: Sequence[Range], pieces: int, longest: int | None = None) -> list[Range]:
    """Return the ranges cut into at least `pieces` of about one length, of `longest` sequences at most.

    There are fewer where there are not as many sequences.
    """
    length = max(1, sum(item.until - item.first for item in ranges) // pieces)
    length = length if longest is None else min(length, longest)
    return [
        replace(item, first=first, until=min(first + length, item.until))
        for item in ranges
        for first in range(item.first, item.until, length)
    ]


def _time(microseconds: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%SZ}"
