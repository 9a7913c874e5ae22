"""Expected and received lines of a file: from where to compare them, and how many are wrong in which way. Decides only."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["Begin", "Counts", "Tally", "compare", "first_of", "lines_of", "meetings"]

_RUN = 10  # lines that must agree for the two sides to meet; one where no ten do
_MOST_MEETINGS = 5
_MOST_HELD = (
    1_000_000  # lines of either side that the other does not have, by their hashes; some 100 MB
)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many lines are wrong: `repeated` were received more often than expected, `foreign` ones are not expected at all.

    A torn or altered line is a missing and a foreign one. Lines are `reordered` where all are there, and some are not in
    their places.
    """

    missing: int = 0
    repeated: int = 0
    reordered: int = 0
    foreign: int = 0

    @property
    def total(self) -> int:
        """How many lines are wrong in all."""
        return self.missing + self.repeated + self.reordered + self.foreign


@dataclass(frozen=True, slots=True)
class Begin:
    """A byte of the expected and one of the received lines from which both are compared."""

    expected: int
    found: int


class Tally:
    """The lines of one side that the other does not have, while both are read."""

    def __init__(self) -> None:
        """Know of none."""
        self._balance: dict[int, int] = {}  # by hash of a line: how many more are expected
        self._later: list[int] = []
        self._apart = 0  # pairs of lines that differ
        self._missing = self._extra = 0  # of lines that are not held
        self.first: int | None = None

    def expect(self, line: bytes) -> None:
        """Take in a line that is expected, where another was received or none."""
        if not self._add(hash(line), 1):
            self._missing += 1

    def differ(self, ours: bytes | None, theirs: bytes | None, is_due: bool, at: int) -> None:
        """Take in lines that should be one: an expected one, which may be missing unless `is_due`, and that received at `at`."""
        if self.first is None:
            self.first = at
        self._apart += ours is not None and theirs is not None
        if ours is not None and is_due:
            self.expect(ours)
        elif ours is not None:
            self._later.append(hash(ours))
        if theirs is not None and not self._add(hash(theirs), -1):
            self._extra += 1

    def _add(self, key: int, step: int) -> bool:
        count = self._balance.pop(key, 0) + step
        if not count:
            return True
        if len(self._balance) < _MOST_HELD:
            self._balance[key] = count
            return True
        return False

    def counts(
        self, older: Callable[[], Iterable[bytes]], expected: Callable[[], Iterable[bytes]]
    ) -> Counts:
        """Return what is wrong, when all is read.

        What is missing and stands in `older`, the lines received before, was received already: the stream has it twice.
        What is received too often is among the `expected` ones.
        """
        for key in self._later:
            if self._balance.get(key, 0) < 0:
                self._balance[key] += 1
        if any(count > 0 for count in self._balance.values()):
            for line in older():
                if self._balance.get(hash(line), 0) > 0:
                    self._balance[hash(line)] -= 1
        missing = self._missing + sum(count for count in self._balance.values() if count > 0)
        extra = {key: -count for key, count in self._balance.items() if count < 0}
        foreign, repeated = self._extra + sum(extra.values()), 0
        if extra:
            for line in expected():
                repeated += extra.pop(hash(line), 0)
        is_whole = not missing and not foreign
        return Counts(missing, repeated, self._apart if is_whole else 0, foreign - repeated)


def compare(
    tally: Tally,
    expected: Iterable[bytes],
    received: Iterable[bytes],
    begin: Begin,
    committed: int,
) -> None:
    """Take lines of both sides into a tally, from `begin` on.

    Lines that are expected behind the `committed` bytes may be there, or a part of one: a receiver writes them just now.
    """
    at, found_at = begin.expected, begin.found
    for ours, theirs in zip_longest(expected, received):
        is_due = at < committed
        if theirs is None and not is_due:
            return
        at += len(ours or b"")
        if ours != theirs and not (at > committed and _is_begun(ours, theirs)):
            tally.differ(ours, theirs, is_due, found_at)
        found_at += len(theirs or b"")


def _is_begun(ours: bytes | None, theirs: bytes | None) -> bool:
    if ours is None or theirs is None or theirs.endswith(b"\n"):
        return False
    return ours.startswith(theirs)


def meetings(
    ours: Sequence[bytes], at: int, theirs: Callable[[], Iterator[bytes]], start: int
) -> list[Begin]:
    """Return where `ours`, expected lines from byte `at` on, meet received ones: where the first lines agree that both have.

    Equal lines may stand at several places. Were nothing wrong, a line would be received `start` bytes further from the
    beginning than it is expected: the places nearest to that come first.
    """
    for length in (_RUN, 1):
        places: dict[int, int] = {}
        for run, place in _runs(ours, at, length):
            places.setdefault(run, place)
        begins: list[Begin] = []
        for run, found_at in _runs(theirs(), 0, length):
            if run in places:
                begins.append(Begin(places[run], found_at))
            if len(begins) > 100 * _MOST_MEETINGS:
                begins = _nearest(begins, start)
        if begins:
            return _nearest(begins, start)
    return []


def _nearest(begins: Iterable[Begin], start: int) -> list[Begin]:
    def distance(begin: Begin) -> tuple[int, int]:
        return begin.expected, abs(begin.found - begin.expected - start)

    nearest = sorted(begins, key=distance)
    return [begin for begin in nearest if begin.expected == nearest[0].expected][:_MOST_MEETINGS]


def _runs(lines: Iterable[bytes], at: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the hash of each run of lines, and where it begins."""
    run: deque[bytes] = deque(maxlen=length)
    for line in lines:
        if len(run) == length:
            at += len(run[0])
        run.append(line)
        if len(run) == length:
            yield hash(tuple(run)), at


def lines_of(pieces: Iterable[bytes], most: int | None = None) -> Iterator[bytes]:
    """Yield the lines of pieces of bytes, with their newlines; the last may have none. Of `most` bytes where that is given."""
    rest = b""
    for piece in pieces if most is None else first_of(pieces, most):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def first_of(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of pieces."""
    for piece in pieces:
        if size <= 0:
            return
        yield piece[:size]
        size -= len(piece)
