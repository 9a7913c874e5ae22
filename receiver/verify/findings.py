"""What differences between expected and received lines are: missing, repeated, reordered, torn or foreign. Decides only.

A line that is missing at one place and stands at another is reordered; a line too many that is expected somewhere is a
repeat. Lines are remembered by a digest, as many as `_MOST`; those beyond count as missing and foreign.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Difference", "Kind", "Ledger"]

_MOST = 500_000
_PAIRED = 50  # lines on either side of a hunk, at most, for torn ones to be looked for


class Kind(Enum):
    """What is wrong with lines of a host."""

    MISSING = "missing"
    """Expected and nowhere to be found."""
    REPEATED = "repeated"
    """Once more than expected."""
    REORDERED = "reordered"
    """There, and at another place than expected."""
    TORN = "torn"
    """A part of the line, or the line with other bytes in it."""
    FOREIGN = "foreign"
    """Not from the stream at all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`lines` lines of `size` bytes that are wrong in one way; `position` is the byte among those received of the first."""

    kind: Kind
    lines: int
    size: int
    position: int


@dataclass(slots=True)
class _Sum:
    lines: int = 0
    size: int = 0
    position: int = -1

    def add(self, lines: int, size: int, position: int) -> None:
        self.lines += lines
        self.size += size
        if self.position < 0 or position < self.position:
            self.position = position


@dataclass(frozen=True, slots=True)
class _Line:
    size: int
    position: int


class Ledger:
    """The differences of one host, as they are found."""

    def __init__(self) -> None:
        """Know of none."""
        self._sums = {kind: _Sum() for kind in Kind}
        self._missing: dict[bytes, list[_Line]] = {}
        self._extra: dict[bytes, list[_Line]] = {}
        self._held = 0

    def note(self, missing: Iterable[bytes], extra: Iterable[bytes], position: int) -> None:
        """Take in lines that are missing before `position` of the received bytes, and those too many from there on."""
        gone, more = list(missing), []
        for line in extra:
            more.append((line, position))
            position += len(line)
        place = more[0][1] if more else position
        lost, left = Counter(gone), []
        for line, where in more:
            if lost[line] > 0:
                lost[line] -= 1
                self._sums[Kind.REORDERED].add(1, len(line), where)
            else:
                left.append((line, where))
        self._pair(list(lost.elements()), left, place)

    def _pair(self, gone: list[bytes], more: list[tuple[bytes, int]], place: int) -> None:
        for line, where in more:
            few = len(gone) <= _PAIRED and len(more) <= _PAIRED
            whole = next((m for m in gone if few and _is_torn(line, m)), None)
            if whole is None:
                self._hold(self._extra, Kind.FOREIGN, line, where)
            else:
                gone.remove(whole)
                self._sums[Kind.TORN].add(1, len(line), where)
        for line in gone:
            self._hold(self._missing, Kind.MISSING, line, place)

    def _hold(self, held: dict[bytes, list[_Line]], kind: Kind, line: bytes, where: int) -> None:
        if self._held < _MOST:
            self._held += 1
            held.setdefault(_digest(line), []).append(_Line(len(line), where))
        else:
            self._sums[kind].add(1, len(line), where)

    def settle_moved(self) -> None:
        """Once all are noted: what is missing here and too many there was moved."""
        for digest in list(self._missing):
            gone, more = self._missing[digest], self._extra.get(digest, [])
            while gone and more:
                gone.pop()
                line = more.pop(0)
                self._sums[Kind.REORDERED].add(1, line.size, line.position)

    def settle_older(self, lines: Iterable[bytes]) -> None:
        """Take in lines received before the stream's first: what is missing and stands there was received already."""
        for line in lines:
            if found := self._missing.get(_digest(line)):
                found.pop()

    def settle_expected(self, lines: Iterable[bytes]) -> None:
        """Take in all expected lines: those that are too many and among them are repeats."""
        for line in lines:
            for more in self._extra.pop(_digest(line), ()):
                self._sums[Kind.REPEATED].add(1, more.size, more.position)

    @property
    def has_missing(self) -> bool:
        """Whether lines are missing that may stand further back."""
        return any(self._missing.values())

    @property
    def has_extra(self) -> bool:
        """Whether lines are too many that may be expected elsewhere."""
        return any(self._extra.values())

    def differences(self) -> tuple[Difference, ...]:
        """Return what was found, by kind; call once, when all is settled."""
        for held, kind in ((self._missing, Kind.MISSING), (self._extra, Kind.FOREIGN)):
            for lines in held.values():
                for line in lines:
                    self._sums[kind].add(1, line.size, line.position)
            held.clear()
        return tuple(
            Difference(kind, found.lines, found.size, found.position)
            for kind, found in self._sums.items()
            if found.lines
        )


def _is_torn(line: bytes, whole: bytes) -> bool:
    """Whether `line` is a piece of `whole`, or `whole` with some other bytes in it."""
    part = line.removesuffix(b"\n")
    if part and len(part) < len(whole) and (whole.startswith(part) or whole.endswith(line)):
        return True
    if len(line) != len(whole):
        return False
    return 2 * sum(a == b for a, b in zip(line, whole, strict=True)) > len(whole)


def _digest(line: bytes) -> bytes:
    return hashlib.blake2b(line, digest_size=12).digest()
