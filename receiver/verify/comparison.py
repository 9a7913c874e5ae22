"""Expected and received lines side by side: how many are wrong, and where the first one is. Decides only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Bytes", "Counts", "Tally", "lines_of"]

_MOST_HELD = (
    1_000_000  # lines of either side that the other does not have, by their hashes; some 100 MB
)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many lines are wrong: `missing` are expected more often than received, `unexpected` are received more often.

    A torn or altered line is a missing and an unexpected one. Lines are `reordered` where all are there, and some are not in
    their places.
    """

    missing: int = 0
    unexpected: int = 0
    reordered: int = 0

    @property
    def total(self) -> int:
        """How many lines are wrong in all."""
        return self.missing + self.unexpected + self.reordered


class Tally:
    """The lines of one side that the other does not have, while both are read."""

    def __init__(self) -> None:
        """Know of none."""
        self._balance: dict[int, int] = {}  # by hash of a line: how many more are expected
        self._apart = 0  # places at which lines differ
        self._missing = self._unexpected = 0  # of lines that are not held

    def compare(self, expected: Iterable[bytes], received: Iterable[bytes]) -> int | None:
        """Take in lines of both sides; return the received byte at which they differ first, None where they do not."""
        at, first = 0, None
        for ours, theirs in zip_longest(expected, received):
            if ours != theirs:
                first = at if first is None else first
                self._apart += 1
                if ours is not None:
                    self._missing += not self._add(hash(ours), 1)
                if theirs is not None:
                    self._unexpected += not self._add(hash(theirs), -1)
            at += len(theirs or b"")
        return first

    def _add(self, key: int, step: int) -> bool:
        """Hold a line, or strike it out against one of the other side; False where there are too many to hold."""
        count = self._balance.pop(key, 0) + step
        if count and len(self._balance) >= _MOST_HELD:
            return False
        if count:
            self._balance[key] = count
        return True

    @property
    def counts(self) -> Counts:
        """What is wrong in all that was compared."""
        missing = self._missing + sum(count for count in self._balance.values() if count > 0)
        unexpected = self._unexpected - sum(count for count in self._balance.values() if count < 0)
        is_whole = not missing and not unexpected
        return Counts(missing, unexpected, self._apart if is_whole else 0)


class Bytes:
    """Pieces of bytes, of which the first so many are taken at a time."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """Take nothing yet."""
        self._pieces = iter(pieces)
        self._rest = b""

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        self._rest = self._rest or next(self._pieces, b"")
        return not self._rest

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes, or what is left."""
        while size > 0 and not self.is_over:
            piece = self._rest
            self._rest = piece[size:]
            yield piece[:size]
            size -= min(size, len(piece))


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of pieces of bytes, with their newlines; the last may have none."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest
