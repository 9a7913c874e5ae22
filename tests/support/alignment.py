"""Two sequences of lines laid side by side: which are on one side only, and which are on both but moved. Pure."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Alignment", "align"]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What does not lie side by side: indices of lines on one side only, and of received lines that are elsewhere."""

    lost: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()


def align(written: Sequence[bytes], received: Sequence[bytes]) -> Alignment:
    """Return how `received` differs from `written`, with as few moves as there can be.

    Where lines are only left out, or only added, that is all; else the n-th of a line is the n-th that was written.
    """
    if (left := _left_over(written, received)) is not None:
        return Alignment(lost=left)
    if (left := _left_over(received, written)) is not None:
        return Alignment(extra=left)
    places: dict[bytes, list[int]] = defaultdict(list)
    for at in range(len(written) - 1, -1, -1):
        places[written[at]].append(at)
    pairs: list[tuple[int, int]] = []
    extra: list[int] = []
    for at, line in enumerate(received):
        if left_places := places.get(line):
            pairs.append((left_places.pop(), at))
        else:
            extra.append(at)
    in_order = _longest_rising([at for at, _ in pairs])
    moved = (pair[1] for number, pair in enumerate(pairs) if number not in in_order)
    lost = sorted(at for left in places.values() for at in left)
    return Alignment(tuple(lost), tuple(extra), tuple(moved))


def _left_over(whole: Sequence[bytes], part: Sequence[bytes]) -> tuple[int, ...] | None:
    """Return the indices of what is left of `whole` without `part`; None where that is not within it, in order."""
    left: list[int] = []
    at = 0
    for number, line in enumerate(whole):
        if at < len(part) and part[at] == line:
            at += 1
        else:
            left.append(number)
    return tuple(left) if at == len(part) else None


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """Return the indices of a longest run of numbers that rise."""
    tails: list[int] = []
    tail_at: list[int] = []
    before = [-1] * len(numbers)
    for i, number in enumerate(numbers):
        place = bisect_left(tails, number)
        if place == len(tails):
            tails.append(number)
            tail_at.append(i)
        else:
            tails[place], tail_at[place] = number, i
        before[i] = tail_at[place - 1] if place else -1
    chain: set[int] = set()
    i = tail_at[-1] if tail_at else -1
    while i >= 0:
        chain.add(i)
        i = before[i]
    return chain
