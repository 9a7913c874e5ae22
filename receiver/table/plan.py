"""Decide what a round reads: from where on in each stream, up to where, in which ranges. No I/O."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nats_logship.client.stream_state import StreamState

RANGE_BYTES = 32 * 1024 * 1024
"""Bytes of messages as stored that a task reads, about."""


REMOVED = "the messages were removed from the stream before they were written"
"""Why lines are missing."""


@dataclass(frozen=True, slots=True)
class Range:
    """The sequences `[first, until)` of a stream, created at `created`.

    The table `gaps` has the unreadable messages before `reported`.
    """

    stream: str
    created: str
    first: int
    until: int
    reported: int = 0

    @property
    def key(self) -> str:
        """The stream with its creation, as tables have it."""
        return f"{self.stream}/{self.created}"


@dataclass(frozen=True, slots=True)
class Removed:
    """Sequences `[first, until)` of a stream that were removed before they were written.

    `stream` has its creation, too, as tables name it.
    """

    stream: str
    first: int
    until: int
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream is read on, and what is missing before that."""

    first: int
    removed: tuple[Removed, ...] = ()


def transaction_name(stream: str, created: str) -> str:
    """Return the name of the transaction that says how far a stream is written."""
    return f"logship/{stream}/{created}"


def find_start(
    state: StreamState, transaction: Callable[[str], int | None], beginning: int
) -> Start:
    """Return where to read a stream on, by the transactions of the table.

    A stream that the table does not know begins at `beginning`. One that was restored from a known
    one is the same up to where that ended.
    """
    first, removed = transaction(transaction_name(state.name, state.created)), list[Removed]()
    for one in reversed(state.ancestors if first is None else ()):
        known = transaction(transaction_name(state.name, one.created))
        if known is not None:
            if known > (first := min(known, one.until)):
                key = f"{state.name}/{one.created}"
                reason = _describe_end("was restored", known, first)
                removed.append(Removed(key, first, known, reason))
            break
    if first is None:
        return Start(beginning)
    if first > state.until:
        reason = _describe_end("ends", first, state.until)
        removed.append(Removed(state.key, state.until, first, reason))
    elif first < state.first:
        removed.append(Removed(state.key, first, state.first, REMOVED))
    return Start(min(max(first, state.first), state.until), tuple(removed))


def _describe_end(how: str, written: int, until: int) -> str:
    return (
        f"the stream {how} up to sequence {until - 1} and was written up to {written - 1}: it lost "
        "its end, and lines that hosts ship again are there twice"
    )


def cut_ranges(state: StreamState, first: int, most_bytes: int, tasks: int) -> list[Range]:
    """Return ranges from `first` on, of about `most_bytes` in all and `RANGE_BYTES` each.

    They are smaller if so there is work for so many tasks.
    """
    width = max(1, state.size // max(1, state.messages))
    until = min(state.until, first + max(1, most_bytes // width))
    if first >= until:
        return []
    size = (until - first) * width
    count = max(-(-size // RANGE_BYTES), min(tasks, -(-size * 4 // RANGE_BYTES)))
    step = max(1, -(-(until - first) // count))
    return [
        Range(state.name, state.created, begin, min(begin + step, until))
        for begin in range(first, until, step)
    ]


def find_ends(ranges: Iterable[Range], starts: dict[tuple[str, str], int]) -> dict[str, int]:
    """Return the transactions of a round: by name, the first sequence that is not written."""
    found = {transaction_name(*key): first for key, first in starts.items()}
    for one in ranges:
        name = transaction_name(one.stream, one.created)
        found[name] = max(found[name], one.until)
    return found
