"""Which sequences a query of the data source reads: from where, up to where, in which pieces. Decides only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.app.exits import OperatorError
from broker.wire.streams import STREAM

__all__ = ["LostSequences", "Range", "StreamEnds", "cut", "kept", "refuse_rewind", "returned"]

_WHOLE_STREAM = (">",)
_PIECE_BYTES = 32 * 1024 * 1024


class LostSequences(OperatorError):
    """Sequences that the query still had to read are not in the stream any more."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences `[first, until)` of a stream, of which those that a subject filter takes in are to be read."""

    subject: str
    first: int
    until: int
    stream: str = STREAM


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """What a stream holds: sequences `[first, until)`, `messages` of them still there, `size` bytes in all.

    `created` is when it was made, in microseconds since 1970: another stream of the same name has another.
    """

    first: int
    until: int
    messages: int
    size: int
    created: int = 0
    name: str = STREAM

    def window_of(self, size: int) -> int:
        """Return how many sequences hold about `size` bytes, by the average of what is stored; at least one."""
        return max(1, size * self.messages // max(1, self.size))


def kept(first: int, until: int, state: StreamEnds, fail: bool) -> int:
    """Return from where `[first, until)` can be read: where the stream now begins, if that is later.

    Raises `LostSequences` instead when `fail`.
    """
    if fail and first < min(state.first, until):
        raise LostSequences(
            f"sequences {first} to {min(state.first, until) - 1} were removed from the stream before they "
            "were read; set failOnDataLoss to false to go on behind them"
        )
    return max(first, state.first)


def refuse_rewind(sequence: int, state: StreamEnds) -> None:
    """Raise `LostSequences` when a sequence lies behind the end of the stream: it belongs to another stream of that name."""
    if sequence > state.until:
        raise LostSequences(
            f"the stream ends at sequence {state.until - 1}, before {sequence - 1}: it was made anew or went "
            "back; correct the offsets, or start the query with a new checkpoint"
        )


def returned(sequence: int, created: int, state: StreamEnds, fail: bool) -> int | None:
    """Return where to read on in a stream that is not the one that `sequence` is of; None while it is.

    A stream made anew is read from its beginning, one that went back (restored from a backup) from its end, since what
    it holds was read. Raises `LostSequences` instead when `fail`.
    """
    if created != state.created:
        if fail:
            raise LostSequences(
                f"the stream was made anew at {_time(state.created)}; that of {_time(created)}, which this query has "
                "read, is gone: start with a new checkpoint, or set failOnDataLoss to false to begin with the new one"
            )
        return state.first
    if fail:
        refuse_rewind(sequence, state)
    return None if sequence <= state.until else state.until


def cut(
    subjects: Sequence[str] | None, first: int, until: int, pieces: int, state: StreamEnds
) -> list[Range]:
    """Return the ranges of `[first, until)` of a stream, one for each task: at least `pieces`, where there are as many sequences.

    Each subject filter has ranges of its own. Without one, the whole of it is cut into ranges of about 32 MiB.
    """
    chosen = _WHOLE_STREAM if subjects is None else subjects
    length = max(1, (until - first) * len(chosen) // pieces)
    if subjects is None:
        length = min(length, state.window_of(_PIECE_BYTES))
    return [
        Range(subject, begin, min(begin + length, until), state.name)
        for subject in chosen
        for begin in range(first, until, length)
    ]


def _time(microseconds: int) -> str:
    return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds):%Y-%m-%dT%H:%M:%SZ}"
