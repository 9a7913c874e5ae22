"""Names for received lines that nobody wrote: torn, altered, or foreign. Pure; nearly linear in the number of lines."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Naming", "name_unknown"]

_SEARCHES = 200
"""How many unknown lines are looked for everywhere; the rest only among lines that begin or end like them."""
_COMPARED = 200
_SAME_LINE = 2
_ALIKE = 0.5


@dataclass(frozen=True, slots=True)
class Naming:
    """What the unknown lines are, and which of the lost lines arrived in that shape and so are not missing."""

    torn: tuple[bytes, ...]
    altered: tuple[bytes, ...]
    foreign: tuple[bytes, ...]
    explained: frozenset[int]


def name_unknown(
    unknown: Iterable[bytes], lost: Sequence[bytes], sources: Sequence[bytes]
) -> Naming:
    """Say of each line in `unknown` what became of it.

    Torn: a part of a written line, or parts and whole lines run together. Altered: like a lost line, with other bytes.
    Foreign: neither. `lost` are the written lines that were not received, `sources` all written bytes.
    """
    lines = _Lost(lost)
    torn, altered, foreign = [], [], []
    for count, line in enumerate(unknown):
        if lines.claim_same(line):
            altered.append(line)
        elif lines.claim_parts(line) or (
            count < _SEARCHES and any(line in source for source in sources)
        ):
            torn.append(line)
        elif lines.claim_like(line):
            altered.append(line)
        else:
            foreign.append(line)
    return Naming(tuple(torn), tuple(altered), tuple(foreign), frozenset(lines.explained))


class _Lost:
    """The lost lines, found by how they begin and how they end."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._heads = sorted((line, i) for i, line in enumerate(lines))
        self._tails = sorted((line[::-1], i) for i, line in enumerate(lines))
        self._text = b"\n".join(lines)
        self._searches = 0
        self._compared = 0
        self.explained: set[int] = set()

    def claim_same(self, line: bytes) -> bool:
        """Claim a lost line of the same length with a byte or two changed."""
        for i in self._near(line):
            other = self._lines[i]
            if (
                i not in self.explained
                and len(other) == len(line)
                and 0 < _different(other, line) <= _SAME_LINE
            ):
                self.explained.add(i)
                return True
        return False

    def claim_parts(self, line: bytes) -> bool:
        """Claim the lost lines that `line` is a part of, or is made of."""
        claimed: list[int] = []
        rest = line
        while rest:
            head, at = _longest(self._heads, rest)
            if head == len(rest):
                claimed.append(at)
                rest = b""
            elif head and head == len(self._lines[at]):
                claimed.append(at)
                rest = rest[head:]
            else:
                break
        if rest and not self._claim_seam(rest, claimed) and not self._claim_inside(line, claimed):
            return False
        self.explained.update(claimed)
        return bool(claimed)

    def _claim_seam(self, rest: bytes, claimed: list[int]) -> bool:
        head, head_at = _longest(self._heads, rest)
        tail, tail_at = _longest(self._tails, rest[::-1])
        if head + tail < len(rest):
            return False
        claimed.extend([tail_at] if tail == len(rest) else [head_at, tail_at])
        return True

    def _claim_inside(self, line: bytes, claimed: list[int]) -> bool:
        self._searches += 1
        if self._searches > _SEARCHES:
            return False
        at = self._text.find(line)
        if at >= 0:
            claimed.append(self._text.count(b"\n", 0, at))
        return at >= 0

    def claim_like(self, line: bytes) -> bool:
        """Claim a lost line that shares its ends, or most of its bytes, with `line`."""
        for i in self._near(line):
            if i not in self.explained and _alike(self._lines[i], line):
                self.explained.add(i)
                return True
        return False

    def _near(self, line: bytes) -> list[int]:
        head = bisect_left(self._heads, (line, -1))
        tail = bisect_left(self._tails, (line[::-1], -1))
        by_ends = [
            i
            for ordered, place in ((self._heads, head), (self._tails, tail))
            for _, i in ordered[max(place - 2, 0) : place + 2]
        ]
        self._compared += 1
        if self._compared > _SEARCHES:
            return by_ends
        return by_ends + list(range(min(len(self._lines), _COMPARED)))


def _longest(ordered: list[tuple[bytes, int]], text: bytes) -> tuple[int, int]:
    """Return how far any of the ordered lines agrees with the beginning of `text`, and which."""
    place = bisect_left(ordered, (text, -1))
    near = ordered[max(place - 1, 0) : place + 1]
    return max(((_common(line, text), i) for line, i in near), default=(0, -1))


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _different(one: bytes, other: bytes) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _alike(one: bytes, other: bytes) -> bool:
    longest = max(len(one), len(other))
    if len(one) == len(other) and _different(one, other) < longest * _ALIKE:
        return True
    return _common(one, other) + _common(one[::-1], other[::-1]) >= longest * _ALIKE
