"""What applications write: texts of several kinds, and the rhythms in which they come. Drawn from a seed; touches no disk.

A line begins with the tag of its log and a number, so that it can be told from all others; some repeat verbatim all the
same, as marks and blank lines do, within a log and between logs. None but the lines of `Huge` is longer than 64 KiB.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.support.lines import LogLines

_MARKS = (b"", b"", b"   ", b"\t", b"\r", b"-- MARK --", b"\0\0\0\0", b"\xff\xfe", b"0")
_LONGEST_LINE = 1024 * 1024  # bytes that a shipper ships in one piece
_HUGE = (10_000, _LONGEST_LINE)
_HUGER = (10_000, 3_000_000)
_HUGE_EVERY = 12.0  # seconds
_SILENCE = (4.0, 30.0)  # seconds between bursts


class Text(Protocol):
    """The lines of a log, without end."""

    def take(self, lines: int) -> bytes:
        """Return the next whole lines, at least so many."""


class Rhythm(Protocol):
    """When lines come."""

    def due(self, seconds: float) -> int:
        """Return how many lines come in the next so many seconds."""


class Traces:
    """Exceptions with frames beneath each other, and a blank line behind each."""

    def __init__(self, tag: str, seed: int) -> None:
        self._lines = LogLines(tag, seed)
        self._chance = random.Random(f"{tag} {seed}")

    def take(self, lines: int) -> bytes:
        parts = []
        while lines > 0:
            frames = self._chance.randrange(3, 60)
            body = self._lines.take(frames).replace(b"\n", b"\n    at ", frames - 1)
            parts.append(body + b"\n")
            lines -= frames + 1
        return b"".join(parts)


class Binary:
    """Any bytes: NULs, carriage returns, what is no UTF-8; blank lines, lines of spaces, marks that repeat."""

    def __init__(self, tag: str, seed: int) -> None:
        self._tag = tag.encode()
        self._chance = random.Random(f"{tag} {seed}")
        self._next = 0

    def take(self, lines: int) -> bytes:
        return b"".join(self._line() for _ in range(lines))

    def _line(self) -> bytes:
        if self._chance.random() < 0.15:
            return self._chance.choice(_MARKS) + b"\n"
        self._next += 1
        junk = self._chance.randbytes(self._chance.randrange(1, 300)).replace(b"\n", b"\r")
        return b"\0%b %08d %b\n" % (self._tag, self._next, junk)


class Huge:
    """Lines of a size in bytes between two bounds, newline included, the longest of all now and then, and just around it."""

    def __init__(self, tag: str, seed: int, bounds: tuple[int, int]) -> None:
        self._tag = tag.encode()
        self._chance = random.Random(f"{tag} {seed}")
        self._junk = self._chance.randbytes(3000).replace(b"\n", b"\r")
        self._bounds = bounds
        self._next = 0

    def take(self, lines: int) -> bytes:
        return b"".join(self._line() for _ in range(lines))

    def _line(self) -> bytes:
        self._next += 1
        least, most = self._bounds
        if self._chance.random() < 0.15:
            size = min(most, _LONGEST_LINE + self._chance.randrange(-2, 3))
        else:
            size = int(least * (most / least) ** self._chance.random())
        head = b"%b %08d " % (self._tag, self._next)
        times = size // len(self._junk) + 1
        at = self._chance.randrange(len(self._junk))
        return head + (self._junk[at:] + self._junk * times)[: size - len(head) - 1] + b"\n"


class Mixed:
    """Entries of several texts in one log: of those that come `often` in turn, of the other one a line in `1 / seldom`."""

    def __init__(self, often: tuple[Text, ...], rare: Text, seldom: float, seed: int) -> None:
        self._often = often
        self._rare = rare
        self._seldom = seldom
        self._chance = random.Random(f"mixed {seed}")

    def take(self, lines: int) -> bytes:
        text = self._chance.choice(self._often).take(lines) if lines else b""
        is_due = self._chance.random() < lines * self._seldom
        return text + self._rare.take(1) if is_due else text


class Steady:
    """Lines at an even rate, in lines per second."""

    def __init__(self, rate: float, chance: random.Random) -> None:
        self._rate = rate
        self._chance = chance
        self._owed = 0.0

    def due(self, seconds: float) -> int:
        self._owed += self._chance.uniform(0, 2) * self._rate * seconds
        lines = int(self._owed)
        self._owed -= lines
        return lines


class Bursts:
    """Silence for many seconds, then all that an even rate would have given by then."""

    def __init__(self, rate: float, chance: random.Random) -> None:
        self._rate = rate
        self._chance = chance
        self._silence = self._left = chance.uniform(*_SILENCE)

    def due(self, seconds: float) -> int:
        self._left -= seconds
        if self._left > 0:
            return 0
        lines = int(self._rate * self._silence)
        self._silence = self._left = self._chance.uniform(*_SILENCE)
        return lines


@dataclass(frozen=True, slots=True)
class Application:
    """What writes one log: `path` below the host's folder of logs, and how many seconds pass until the file is there."""

    path: str
    text: Text
    rhythm: Rhythm
    appears: float = 0.0


def applications(number: int, rate: int, seed: int) -> list[Application]:
    """Return what the host of this number runs: about `rate` lines per second in all, whatever kinds it has.

    Every third host has one log for everything, with lines longer than a shipper ships in one piece: where there are
    other logs, a line that is shipped in pieces may be ended by theirs.
    """
    chance = random.Random(f"applications {number} {seed}")
    if number % 3 == 1:
        return [_everything(rate, seed, chance)]
    others = chance.sample(_OTHERS, 4)
    return [
        Application("app.log", LogLines("app", seed), Steady(rate / 2, chance)),
        *(make(rate / 2, seed, chance) for make in others),
    ]


def plain_applications(rate: int, seed: int) -> list[Application]:
    """Return applications that write lines of text, about `rate` per second in all: what every suite can carry."""
    chance = random.Random(f"plain {seed}")
    return [
        Application("app.log", LogLines("app", seed), Steady(rate / 2, chance)),
        Application("access.log", LogLines("access", seed), Steady(rate / 2, chance)),
    ]


def _everything(rate: float, seed: int, chance: random.Random) -> Application:
    often = (LogLines("all", seed), Traces("trace", seed), Binary("binary", seed))
    huge = Huge("huger", seed, _HUGER)
    per_line = 1 / (_HUGE_EVERY * rate)
    text = Mixed(often, huge, per_line, seed)
    return Application("all.log", text, Steady(rate, chance))


def _access(rate: float, seed: int, chance: random.Random) -> Application:
    return Application("web/access.log", LogLines("access", seed), Bursts(rate * 0.7, chance))


def _traces(rate: float, seed: int, chance: random.Random) -> Application:
    return Application("errors.log", Traces("error", seed), Bursts(rate * 0.2, chance))


def _binary(rate: float, seed: int, chance: random.Random) -> Application:
    return Application("data/deep/binary.log", Binary("binary", seed), Steady(rate * 0.2, chance))


def _huge(_: float, seed: int, chance: random.Random) -> Application:
    return Application("huge.log", Huge("huge", seed, _HUGE), Steady(1 / _HUGE_EVERY, chance))


def _quiet(_: float, seed: int, chance: random.Random) -> Application:
    return Application("quiet.log", LogLines("quiet", seed), Bursts(0.1, chance))


def _late(rate: float, seed: int, chance: random.Random) -> Application:
    appears = chance.uniform(5, 60)
    return Application("new/late.log", LogLines("late", seed), Steady(rate * 0.2, chance), appears)


_OTHERS: tuple[Callable[[float, int, random.Random], Application], ...] = (
    _access,
    _traces,
    _binary,
    _huge,
    _quiet,
    _late,
)
