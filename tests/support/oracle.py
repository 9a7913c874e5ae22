"""The judge of every journey: what was written on a host against what was received from it.

Counts lines that are missing, repeated, out of order, torn and foreign, and compares the bytes. The
whole of a torn line is missing too, unless it was also received.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from tests.support.processes import Process, TookTooLong, wait_until
from tests.support.received import read_received

_SHOWN = 3
_SHARED = -1
_SEARCHES = 200
_PATIENCE = 150.0  # seconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the lines of a host; all numbers are lines, `examples` shows some.

    `missing`: written, not received. `repeated`: received more often than written. `reordered`:
    received behind a later line of its file. `torn`: a part of a line, or several run together.
    `foreign`: never written.
    """

    written: int
    received: int
    missing: int = 0
    repeated: int = 0
    reordered: int = 0
    torn: int = 0
    foreign: int = 0
    bytes_equal: bool = True
    examples: tuple[str, ...] = ()

    @property
    def is_perfect(self) -> bool:
        """Whether every line arrived once, in order, byte for byte."""
        harm = (self.missing, self.repeated, self.reordered, self.torn, self.foreign)
        return self.bytes_equal and not any(harm)

    @property
    def is_complete(self) -> bool:
        """Whether every line arrived once, byte for byte, if not in order."""
        return (
            self.received == self.written
            and not any((self.missing, self.repeated, self.torn, self.foreign))
            and (self.bytes_equal or self.reordered > 0)
        )

    def __str__(self) -> str:
        return (
            f"{self.written} written, {self.received} received: {self.missing} missing, "
            f"{self.repeated} repeated, {self.reordered} out of order, {self.torn} torn, "
            f"{self.foreign} foreign; "
            f"bytes {'equal' if self.bytes_equal else 'DIFFER'}"
            + "".join(f"\n  {e}" for e in self.examples)
        )


def judge_host(sources: Iterable[Path], output: Path, host: str) -> Verdict:
    """Compare the received files of `host` below `output` with its sources, in write order."""
    return judge([path.read_bytes() for path in sources], read_received(output, host))


def expect_all(
    output: Path,
    written: Mapping[str, Sequence[bytes]],
    watched: Sequence[Process] = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Wait until all bytes of each host are received below `output`; expect each line once."""

    def is_received() -> bool:
        meanwhile()
        with suppress(FileNotFoundError, ValueError):  # a file is just being exchanged
            received = {host: len(read_received(output, host)) for host in written}
            return all(received[host] >= sum(map(len, own)) for host, own in written.items())
        return False

    with suppress(TookTooLong):  # the verdict says what is missing
        wait_until("all is received", is_received, _PATIENCE, watched, every=0.2)
    verdicts = {host: judge(own, read_received(output, host)) for host, own in written.items()}
    assert {host: str(one) for host, one in verdicts.items() if not one.is_perfect} == {}


def judge(sources: Sequence[bytes], received: bytes) -> Verdict:
    """Compare a host's received bytes with its source files, which may be interleaved by lines.

    Order is judged within each source; a line of several sources is judged by its count alone. A
    source's unfinished last line counts as finished, as the receiver finishes it.
    """
    written = [one if one.endswith(b"\n") or not one else one + b"\n" for one in sources]
    if len(written) == 1 and written[0] == received:
        count = received.count(b"\n")
        return Verdict(count, count)
    lines = [one.split(b"\n")[:-1] for one in written]
    owners = _owners(lines)
    if (last := _last_line(received)) and last in map(_last_line, sources):
        received += b"\n"
    *come, tail = received.split(b"\n")
    kinds: dict[str, list[bytes]] = {"missing": [], "repeated": [], "reordered": []}
    unknown = [line for line in come if line not in owners] + [tail] * bool(tail)
    kinds["torn"], kinds["foreign"] = _name(unknown, written, owners)
    wanted_of, own_of = _by_owner(owners, chain.from_iterable(lines)), _by_owner(owners, come)
    for number in (_SHARED, *range(len(lines))):
        wanted, own = wanted_of[number], own_of[number]
        if own != wanted:
            kinds["missing"] += (Counter(wanted) - Counter(own)).elements()
            kinds["repeated"] += (Counter(own) - Counter(wanted)).elements()
            kinds["reordered"] += _late(wanted, own) if number != _SHARED else ()
    is_equal = (
        received == written[0] if len(written) == 1 else len(received) == sum(map(len, written))
    )
    return Verdict(
        written=sum(map(len, lines)),
        received=len(come) + bool(tail),
        bytes_equal=is_equal and not any(kinds.values()),
        examples=tuple(f"{kind}: {one[:160]!r}" for kind in kinds for one in kinds[kind][:_SHOWN]),
        **{kind: len(found) for kind, found in kinds.items()},
    )


def _last_line(content: bytes) -> bytes:
    return content.rpartition(b"\n")[2]


def _late(written: Sequence[bytes], received: Sequence[bytes]) -> list[bytes]:
    """Return the received lines that came behind a later one, without those that came too often."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for place, line in enumerate(written):
        places[line].append(place)
    left, reached, late = Counter(written), -1, []
    for line in received:
        if not left[line]:
            continue
        left[line] -= 1
        following = bisect_right(places[line], reached)
        if following < len(places[line]):
            reached = places[line][following]
        else:
            late.append(line)
    return late


def _name(
    unknown: Sequence[bytes], sources: Sequence[bytes], written: Iterable[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """Return which unknown lines are torn, and which foreign; of the first 200 also inner parts."""
    heads = sorted(written) if unknown else []
    tails = sorted(line[::-1] for line in heads)
    torn: list[bytes] = []
    foreign: list[bytes] = []
    for number, line in enumerate(unknown):
        is_part = number < _SEARCHES and any(line in source for source in sources)
        (torn if is_part or _is_made_of(line, heads, tails) else foreign).append(line)
    return torn, foreign


def _is_made_of(line: bytes, heads: Sequence[bytes], tails: Sequence[bytes]) -> bool:
    """Whether a line is whole written lines, and what one begins and another one ends with."""
    rest = line
    while rest:
        head = _longest(heads, rest)
        # a blank line, of no bytes, would be taken without end
        if 0 < head < len(rest) and heads[bisect_left(heads, rest[:head])] == rest[:head]:
            rest = rest[head:]
        else:
            return head + _longest(tails, rest[::-1]) >= len(rest)
    return True


def _longest(ordered: Sequence[bytes], text: bytes) -> int:
    """Return how many bytes the beginning of `text` shares with the line that shares most."""
    place = bisect_left(ordered, text)
    near = ordered[max(place - 1, 0) : place + 1]
    return max((_shared(line, text) for line in near), default=0)


def _shared(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _by_owner(owners: dict[bytes, int], lines: Iterable[bytes]) -> defaultdict[int, list[bytes]]:
    found: defaultdict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        if (number := owners.get(line)) is not None:
            found[number].append(line)
    return found


def _owners(sources: Sequence[Sequence[bytes]]) -> dict[bytes, int]:
    owners: dict[bytes, int] = {}
    for number, lines in enumerate(sources):
        if number:
            owners.update(dict.fromkeys(set(lines) & owners.keys(), _SHARED))
        for line in lines:
            owners.setdefault(line, number)
    return owners
