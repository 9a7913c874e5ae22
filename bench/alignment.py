"""Two sequences of lines laid side by side: which are on one side only, and which are on both but moved.

A patience diff: lines that are unique on both sides are the backbone, what lies between them is aligned in turn. Close
to linear, so that millions of lines take seconds; pure.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

__all__ = ["Alignment", "align"]

_SMALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Alignment:
    """What does not lie side by side: indices of lines on one side only, and of received lines that are elsewhere."""

    lost: tuple[int, ...]
    extra: tuple[int, ...]
    moved: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Half-open ranges of both sides that lie between the same neighbours."""

    written_start: int
    written_end: int
    received_start: int
    received_end: int


def align(written: Sequence[bytes], received: Sequence[bytes]) -> Alignment:
    """Return how `received` differs from `written`: as few moves as the backbone allows, ties broken by place."""
    lost: list[int] = []
    extra: list[int] = []
    todo = [_Stretch(0, len(written), 0, len(received))]
    while todo:
        stretch = _trim(todo.pop(), written, received)
        inner = _split(stretch, written, received)
        if inner is None:
            lost.extend(range(stretch.written_start, stretch.written_end))
            extra.extend(range(stretch.received_start, stretch.received_end))
        else:
            todo.extend(inner)
    return _pair_moved(sorted(lost), sorted(extra), written, received)


def _trim(stretch: _Stretch, written: Sequence[bytes], received: Sequence[bytes]) -> _Stretch:
    w0, w1 = stretch.written_start, stretch.written_end
    r0, r1 = stretch.received_start, stretch.received_end
    while w0 < w1 and r0 < r1 and written[w0] == received[r0]:
        w0, r0 = w0 + 1, r0 + 1
    while w0 < w1 and r0 < r1 and written[w1 - 1] == received[r1 - 1]:
        w1, r1 = w1 - 1, r1 - 1
    return _Stretch(w0, w1, r0, r1)


def _split(
    stretch: _Stretch, written: Sequence[bytes], received: Sequence[bytes]
) -> list[_Stretch] | None:
    """Return the stretches between what lies side by side in this one, None when nothing does."""
    if (
        stretch.written_start == stretch.written_end
        or stretch.received_start == stretch.received_end
    ):
        return None
    pairs = _backbone(stretch, written, received) or _difference(stretch, written, received)
    if not pairs:
        return None
    inner = []
    w, r = stretch.written_start, stretch.received_start
    for at_written, at_received in [*pairs, (stretch.written_end, stretch.received_end)]:
        if w < at_written or r < at_received:
            inner.append(_Stretch(w, at_written, r, at_received))
        w, r = at_written + 1, at_received + 1
    return inner


def _backbone(
    stretch: _Stretch, written: Sequence[bytes], received: Sequence[bytes]
) -> list[tuple[int, int]]:
    once_written = _unique(written, stretch.written_start, stretch.written_end)
    once_received = _unique(received, stretch.received_start, stretch.received_end)
    common = [(once_written[line], r) for line, r in once_received.items() if line in once_written]
    return _longest_rising(common)


def _unique(lines: Sequence[bytes], start: int, end: int) -> dict[bytes, int]:
    """Return the lines that occur once in `[start, end)`, in order, with their index."""
    counts = Counter(lines[start:end])
    return {lines[i]: i for i in range(start, end) if counts[lines[i]] == 1}


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of pairs, ordered by the second number, whose first numbers rise too."""
    tails: list[int] = []
    tail_at: list[int] = []
    before = [-1] * len(pairs)
    for i, (number, _) in enumerate(pairs):
        place = bisect_left(tails, number)
        if place == len(tails):
            tails.append(number)
            tail_at.append(i)
        else:
            tails[place], tail_at[place] = number, i
        before[i] = tail_at[place - 1] if place else -1
    chain = []
    i = tail_at[-1] if tail_at else -1
    while i >= 0:
        chain.append(pairs[i])
        i = before[i]
    return chain[::-1]


def _difference(
    stretch: _Stretch, written: Sequence[bytes], received: Sequence[bytes]
) -> list[tuple[int, int]]:
    """Align lines none of which is unique: each with its next like, or with more care where that is cheap."""
    ours = written[stretch.written_start : stretch.written_end]
    theirs = received[stretch.received_start : stretch.received_end]
    near = _next_likes(ours, theirs)
    if len(near) < len(theirs) and len(ours) * len(theirs) <= _SMALL:
        blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
        near = [(a + i, b + i) for a, b, size in blocks for i in range(size)]
    return [(stretch.written_start + w, stretch.received_start + r) for w, r in near]


def _next_likes(ours: Sequence[bytes], theirs: Sequence[bytes]) -> list[tuple[int, int]]:
    places: dict[bytes, list[int]] = defaultdict(list)
    for i, line in enumerate(ours):
        places[line].append(i)
    pairs, reached = [], 0
    for r, line in enumerate(theirs):
        found = places.get(line, [])
        at = bisect_left(found, reached)
        if at < len(found):
            pairs.append((found[at], r))
            reached = found[at] + 1
    return pairs


def _pair_moved(
    lost: list[int], extra: list[int], written: Sequence[bytes], received: Sequence[bytes]
) -> Alignment:
    waiting: dict[bytes, list[int]] = defaultdict(list)
    for i in reversed(lost):
        waiting[written[i]].append(i)
    moved, more = [], []
    for r in extra:
        if waiting.get(received[r]):
            waiting[received[r]].pop()
            moved.append(r)
        else:
            more.append(r)
    gone = sorted(i for places in waiting.values() for i in places)
    return Alignment(tuple(gone), tuple(more), tuple(moved))
