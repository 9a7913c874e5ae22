"""Two runs of lines side by side, a window at a time: where they part, and where they meet again. Decides only.

What stands before the first line that both have is no difference: received files reach further back than the stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Hunk", "Side", "hunks"]

_WINDOW = 4 * 1024 * 1024
_RUN = 3  # lines that must agree before the two sides are held to have met again
_TRIES = 8  # places of one line that are looked at


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that only one side has, between two places at which both agree; positions are of the first of them.

    `is_front` says that the sides had not agreed in anything yet.
    """

    expected_at: int
    missing: tuple[bytes, ...]
    found_at: int
    extra: tuple[bytes, ...]
    is_front: bool


class Side:
    """One run of bytes, read as far as needed; `whole` is how many there are, `at` how many were passed."""

    def __init__(self, pieces: Iterator[bytes], whole: int, at: int = 0) -> None:
        """Read nothing yet."""
        self._pieces = pieces
        self._whole = whole
        self.at = at
        self.buffer = b""
        self.is_read = False

    def fill(self) -> None:
        """Have a window of bytes at hand, or all that are left."""
        if len(self.buffer) >= _WINDOW or self.is_read:
            return
        gathered, size = [self.buffer], len(self.buffer)
        while size < _WINDOW:
            piece = next(self._pieces, None)
            if piece is None:
                self.is_read = True
                break
            gathered.append(piece)
            size += len(piece)
        self.buffer = b"".join(gathered)

    def pass_by(self, size: int) -> None:
        """Leave bytes behind."""
        self.buffer = self.buffer[size:]
        self.at += size

    @property
    def left(self) -> int:
        """Bytes still to come, about."""
        return max(self._whole - self.at, len(self.buffer))

    def lines(self) -> list[bytes]:
        """Return the whole lines at hand, with their newlines; the last of all may have none."""
        end = len(self.buffer) if self.is_read else self.buffer.rfind(b"\n") + 1 or len(self.buffer)
        lines = self.buffer[:end].split(b"\n")
        last = lines.pop()
        return [line + b"\n" for line in lines] + ([last] if last else [])


def hunks(expected: Side, found: Side, agreed: bool = False) -> Iterator[Hunk]:
    """Yield where two sides differ, in order. `agreed` says that they are known to begin at the same line."""
    while True:
        expected.fill()
        found.fill()
        if not expected.buffer and not found.buffer:
            return
        same = _same(expected, found)
        if same and (agreed or _is_enough(expected, found, same)):
            agreed = True
            expected.pass_by(same)
            found.pass_by(same)
            continue
        ours, theirs = expected.lines(), found.lines()
        met = _meet(ours, theirs, expected.is_read and found.is_read)
        ahead, behind = met or _apart(expected, found, len(ours), len(theirs))
        hunk = Hunk(expected.at, tuple(ours[:ahead]), found.at, tuple(theirs[:behind]), not agreed)
        agreed = agreed or met is not None
        expected.pass_by(sum(map(len, hunk.missing)))
        found.pass_by(sum(map(len, hunk.extra)))
        if hunk.missing or hunk.extra:
            yield hunk


def _is_enough(expected: Side, found: Side, same: int) -> bool:
    """Whether so many bytes alike mean that two sides begin at the same line."""
    return (
        same in {len(expected.buffer), len(found.buffer)}
        or expected.buffer.count(b"\n", 0, same) >= _RUN
    )


def _same(expected: Side, found: Side) -> int:
    """Return how many bytes agree from here, whole lines only unless both end there."""
    ours, theirs = expected.buffer, found.buffer
    agreeing, size = 0, min(len(ours), len(theirs))
    if ours[:size] == theirs[:size]:
        if len(ours) == len(theirs) and expected.is_read and found.is_read:
            return size
        agreeing = differing = size
    else:
        differing = size
    while differing - agreeing > 1:
        middle = (agreeing + differing) // 2
        if ours[agreeing:middle] == theirs[agreeing:middle]:
            agreeing = middle
        else:
            differing = middle
    return ours.rfind(b"\n", 0, agreeing) + 1


def _meet(ours: list[bytes], theirs: list[bytes], at_end: bool) -> tuple[int, int] | None:
    """Return how many lines each side is to pass until both go on alike, the fewest in all; None for never."""
    places: dict[bytes, list[int]] = {}
    for index, line in enumerate(theirs):
        known = places.setdefault(line, [])
        if len(known) < _TRIES:
            known.append(index)
    best = (len(ours), len(theirs)) if at_end else None
    for ahead, line in enumerate(ours):
        if best and ahead >= sum(best):
            break
        for behind in places.get(line, ()):
            if best and ahead + behind >= sum(best):
                break
            if ours[ahead : ahead + _RUN] == theirs[behind : behind + _RUN]:
                best = (ahead, behind)
                break
    return best


def _apart(expected: Side, found: Side, ours: int, theirs: int) -> tuple[int, int]:
    """Return how many lines to pass where no place to meet is in sight: those of the side that has more to come."""
    surplus = found.left - expected.left
    if surplus > 0 and theirs:
        return 0, theirs
    if surplus < 0 and ours:
        return ours, 0
    return ours, theirs
