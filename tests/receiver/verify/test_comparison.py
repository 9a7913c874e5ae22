"""Expected and received lines side by side: no damage is passed over, and wrong lines are counted for what they are."""

import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from receiver.verify.comparison import Bytes, Counts, Tally, lines_of

LINES = [b"line %05d of a log\n" % n for n in range(200)]


def cut(data: bytes, seed: int = 1) -> Iterator[bytes]:
    places = sorted({0, len(data), *random.Random(seed).choices(range(len(data) + 1), k=20)})
    return iter([data[a:b] for a, b in pairwise(places)])


def compared(expected: list[bytes], there: list[bytes]) -> tuple[Counts, int | None]:
    tally = Tally()
    first = tally.compare(lines_of(cut(b"".join(expected))), lines_of(cut(b"".join(there), seed=2)))
    return tally.counts, first


@pytest.mark.parametrize(
    ("there", "wrong", "first"),
    [
        pytest.param(LINES, Counts(), None, id="none"),
        pytest.param(LINES[:90] + LINES[91:], Counts(missing=1), 90, id="a line removed"),
        pytest.param(LINES[:90] + LINES[89:], Counts(unexpected=1), 90, id="a line doubled"),
        pytest.param(
            [*LINES[:90], LINES[91], LINES[90], *LINES[92:]],
            Counts(reordered=2),
            90,
            id="swapped",
        ),
        pytest.param(
            [*LINES[:-1], LINES[-1][:9]], Counts(missing=1, unexpected=1), 199, id="the last cut"
        ),
        pytest.param([], Counts(missing=200), 0, id="nothing there"),
    ],
)
def test_each_damage_is_counted(there: list[bytes], wrong: Counts, first: int | None) -> None:
    place = None if first is None else first * len(LINES[0])

    assert compared(LINES, there) == (wrong, place)


@pytest.mark.parametrize("seed", range(60))
def test_no_random_damage_is_passed_over_and_every_line_is_accounted_for(seed: int) -> None:
    chance = random.Random(seed)
    expected = [b"line %d\n" % (n // chance.choice([1, 1, 3])) for n in range(300)]
    there = list(expected)
    for _ in range(chance.randrange(4)):
        place = chance.randrange(20, len(there))
        match chance.randrange(3):
            case 0:
                del there[place : place + chance.randrange(1, 30)]
            case 1:
                there[place:place] = there[place - 5 : place]
            case _:
                there.insert(place, b"a stranger's %d\n" % place)

    counts, _ = compared(expected, there)

    assert bool(counts.total) == (expected != there)
    assert counts.missing == (Counter(expected) - Counter(there)).total()
    assert counts.unexpected == (Counter(there) - Counter(expected)).total()


def test_bytes_are_taken_as_they_come() -> None:
    data = b"".join(LINES)
    source = Bytes(cut(data))

    taken = [b"".join(source.take(size)) for size in (0, 7, 1000, 2**62)]

    assert b"".join(taken) == data
    assert list(map(len, taken[:3])) == [0, 7, 1000]
    assert source.is_over
