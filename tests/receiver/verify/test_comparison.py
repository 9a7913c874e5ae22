"""Expected and received lines side by side: no damage is passed over, and wrong lines are counted for what they are."""

import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

from receiver.verify.comparison import Begin, Counts, Tally, compare, lines_of, meetings

LINES = [b"line %05d of a log\n" % n for n in range(200)]
OLDER = [b"older %d\n" % n for n in range(99)]


def cut(data: bytes, seed: int = 1) -> Iterator[bytes]:
    places = sorted({0, len(data), *random.Random(seed).choices(range(len(data) + 1), k=20)})
    return iter([data[a:b] for a, b in pairwise(places)])


def counted(expected: list[bytes], there: list[bytes], later: tuple[bytes, ...] = ()) -> Counts:
    """Count what is wrong from the best place at which both meet."""
    ours, theirs = b"".join(expected), b"".join(there)
    start = len(theirs) - len(ours)
    found = []
    for begin in meetings(expected, 0, lambda: lines_of(cut(theirs)), start) or [Begin(0, 0)]:
        tally = Tally()
        for line in lines_of([ours[: begin.expected]]):
            tally.expect(line)
        compare(
            tally,
            lines_of(cut((ours + b"".join(later))[begin.expected :])),
            lines_of(cut(theirs[begin.found :], 2)),
            begin,
            len(ours),
        )
        older = list(lines_of([theirs[: begin.found]]))
        found.append(tally.counts(partial(iter, older), partial(iter, expected)))
    return min(found, key=lambda counts: counts.total)


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        pytest.param(LINES, Counts(), id="none"),
        pytest.param(LINES[:90] + LINES[91:], Counts(missing=1), id="a line removed"),
        pytest.param(LINES[1:], Counts(missing=1), id="the first one removed"),
        pytest.param(LINES[:90] + LINES[120:], Counts(missing=30), id="many removed"),
        pytest.param(LINES[:90] + LINES[89:], Counts(repeated=1), id="a line doubled"),
        pytest.param(LINES + LINES[10:20], Counts(repeated=10), id="lines again at the end"),
        pytest.param(
            [*LINES[:90], LINES[91], LINES[90], *LINES[92:]], Counts(reordered=2), id="swapped"
        ),
        pytest.param(
            LINES[:50] + LINES[60:] + LINES[50:60], Counts(reordered=150), id="moved to the end"
        ),
        pytest.param(LINES[:-1], Counts(missing=1), id="the last one gone"),
        pytest.param(
            [*LINES[:-1], LINES[-1][:9]], Counts(missing=1, foreign=1), id="the last one cut"
        ),
        pytest.param(
            [*LINES[:90], b"line 00090 of A log\n", *LINES[91:]],
            Counts(missing=1, foreign=1),
            id="a byte",
        ),
        pytest.param([*LINES[:90], b"stranger\n", *LINES[90:]], Counts(foreign=1), id="foreign"),
        pytest.param(OLDER + LINES, Counts(), id="older ones in front"),
        pytest.param([*OLDER, *LINES[:9], *LINES[10:]], Counts(missing=1), id="older, one removed"),
        pytest.param([], Counts(missing=200), id="nothing there"),
    ],
)
def test_each_damage_is_counted(there: list[bytes], wrong: Counts) -> None:
    assert counted(LINES, there) == wrong


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

    counts = counted(expected, there)

    more, less = Counter(there) - Counter(expected), Counter(expected) - Counter(there)
    assert bool(counts.total) == (expected != there)
    assert counts.missing == less.total()
    assert counts.repeated + counts.foreign == more.total()
    assert counts.foreign == sum(b"stranger" in line for line in there)


def test_what_the_stream_has_twice_was_received_before_its_first_lines() -> None:
    again = OLDER[:40:2] + LINES  # of one file, whose lines stood among those of another

    assert counted(again, OLDER + LINES) == Counts()
    assert counted(again, OLDER[1:] + LINES) == Counts(missing=1)


@pytest.mark.parametrize(
    "more", [b"", b"late", b"later 1\n", b"later 1\nlat", b"later 1\nlater 2\n"]
)
def test_lines_behind_the_committed_ones_may_be_there_or_a_part_of_them(more: bytes) -> None:
    later = (b"later 1\n", b"later 2\n")

    assert counted(LINES, [*LINES, more], later) == Counts()
    assert counted(LINES, [*OLDER, *LINES, more], later) == Counts()
    assert counted(LINES, [*LINES[:9], *LINES[10:], b"later 1\n"], later) == Counts(missing=1)
