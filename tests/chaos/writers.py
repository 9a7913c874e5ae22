"""What applications write: texts of several kinds and rhythms, drawn from a seed, without a disk.

A line begins with the tag of its log and a number, so that it is unique; marks and blank lines
repeat all the same. Only lines of `huge` are longer than 64 KiB.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.support.lines import LogLines

_MARKS = (b"", b"", b"   ", b"\t", b"\r", b"-- MARK --", b"\0\0\0\0", b"\xff\xfe", b"0")
_LONGEST_LINE = 1024 * 1024  # bytes that a shipper ships in one piece
_HUGE = (10_000, _LONGEST_LINE)
_HUGER = (10_000, 3_000_000)
_HUGE_EVERY = 12.0  # seconds
_SILENCE = (4.0, 30.0)  # seconds between bursts


Rhythm = Callable[[float], int]
"""How many lines come in the next so many seconds."""


class Text:
    """The lines of a log, from a generator of entries that has no end."""

    def __init__(self, entries: Iterator[bytes]) -> None:
        self._entries = entries

    def take(self, lines: int) -> bytes:
        parts = []
        while lines > 0:
            parts.append(next(self._entries))
            lines -= parts[-1].count(b"\n")
        return b"".join(parts)


def traces(tag: str, seed: int) -> Iterator[bytes]:
    """Yield exceptions with frames beneath each other, and a blank line behind each."""
    lines, chance = LogLines(tag, seed), random.Random(f"{tag} {seed}")
    while True:
        frames = chance.randrange(3, 60)
        yield lines.take(frames).replace(b"\n", b"\n    at ", frames - 1) + b"\n"


def binary(tag: str, seed: int) -> Iterator[bytes]:
    """Yield any bytes: NULs, carriage returns, no UTF-8, blank lines, marks that repeat."""
    chance = random.Random(f"{tag} {seed}")
    for number in itertools.count(1):
        while chance.random() < 0.15:
            yield chance.choice(_MARKS) + b"\n"
        junk = chance.randbytes(chance.randrange(1, 300)).replace(b"\n", b"\r")
        yield b"\0%b %08d %b\n" % (tag.encode(), number, junk)


def huge(tag: str, seed: int, bounds: tuple[int, int]) -> Iterator[bytes]:
    """Yield lengths of lines within bounds, newline included; at times the longest, or near it."""
    chance = random.Random(f"{tag} {seed}")
    junk = chance.randbytes(3000).replace(b"\n", b"\r")
    least, most = bounds
    for number in itertools.count(1):
        if chance.random() < 0.15:
            size = min(most, _LONGEST_LINE + chance.randrange(-2, 3))
        else:
            size = int(least * (most / least) ** chance.random())
        head, at = b"%b %08d " % (tag.encode(), number), chance.randrange(len(junk))
        filler = junk[at:] + junk * (size // len(junk) + 1)
        yield head + filler[: size - len(head) - 1] + b"\n"


def mixed(
    often: Sequence[Text | LogLines], rare: Text, seldom: float, seed: int
) -> Iterator[bytes]:
    """Yield lines of `often`, which alternate; one line in `1 / seldom` is of `rare`."""
    chance = random.Random(f"mixed {seed}")
    while True:
        lines = chance.randrange(1, 30)
        yield chance.choice(often).take(lines)
        if chance.random() < lines * seldom:
            yield rare.take(1)


def steady(rate: float, chance: random.Random) -> Rhythm:
    owed = 0.0

    def due(seconds: float) -> int:
        nonlocal owed
        owed += chance.uniform(0, 2) * rate * seconds
        lines = int(owed)
        owed -= lines
        return lines

    return due


def bursts(rate: float, chance: random.Random) -> Rhythm:
    """Return silence for many seconds, then all that an even rate would have given by then."""
    silence = left = chance.uniform(*_SILENCE)

    def due(seconds: float) -> int:
        nonlocal silence, left
        left -= seconds
        if left > 0:
            return 0
        lines = int(rate * silence)
        silence = left = chance.uniform(*_SILENCE)
        return lines

    return due


@dataclass(frozen=True, slots=True)
class Application:
    """What writes one log, at `path` below the host's folder; the file `appears` after seconds.

    One of `records` writes whole entries at once, each of which is a record of several lines.
    """

    path: str
    text: Text | LogLines
    rhythm: Rhythm
    appears: float = 0.0
    records: bool = False


def applications(number: int, rate: int, seed: int) -> list[Application]:
    """Return what the host of this number runs: about `rate` lines per second in all.

    Every third host has one log for everything, with lines longer than a shipper ships in one
    piece: another log's line may end a line that is shipped in pieces. All others have a log of
    records.
    """
    chance = random.Random(f"applications {number} {seed}")
    if number % 3 == 1:
        return [_everything(rate, seed, chance)]
    app = Application("app.log", LogLines("app", seed), steady(rate / 2, chance))
    text = Text(traces("record", seed))
    records = Application("records.log", text, steady(rate * 0.1, chance), records=True)
    return [app, *chance.sample(_others(rate / 2, seed, chance), 4), records]


def _everything(rate: float, seed: int, chance: random.Random) -> Application:
    often = (LogLines("all", seed), Text(traces("trace", seed)), Text(binary("binary", seed)))
    rare = Text(huge("huger", seed, _HUGER))
    text = Text(mixed(often, rare, 1 / (_HUGE_EVERY * rate), seed))
    return Application("all.log", text, steady(rate, chance))


def _others(rate: float, seed: int, chance: random.Random) -> list[Application]:
    data = "data/deep/binary.log"
    late, appears = steady(rate * 0.2, chance), chance.uniform(5, 60)
    return [
        Application("web/access.log", LogLines("access", seed), bursts(rate * 0.7, chance)),
        Application("errors.log", Text(traces("error", seed)), bursts(rate * 0.2, chance)),
        Application(data, Text(binary("binary", seed)), steady(rate * 0.2, chance)),
        Application("huge.log", Text(huge("huge", seed, _HUGE)), steady(1 / _HUGE_EVERY, chance)),
        Application("quiet.log", LogLines("quiet", seed), bursts(0.1, chance)),
        Application("new/late.log", LogLines("late", seed), late, appears),
    ]
