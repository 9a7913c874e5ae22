"""Two runs of lines side by side: every difference is found and named for what it is."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from receiver.verify import compare
from receiver.verify.compare import Side, hunks
from receiver.verify.findings import Kind, Ledger

LINES = [b"line %05d of a log\n" % n for n in range(200)]


def cut(data: bytes, seed: int = 1) -> Iterator[bytes]:
    places = sorted({0, len(data), *random.Random(seed).choices(range(len(data) + 1), k=20)})
    return iter([data[a:b] for a, b in pairwise(places)])


def found(expected: list[bytes], there: list[bytes]) -> dict[Kind, int]:
    ours, theirs = b"".join(expected), b"".join(there)
    ledger = Ledger()
    for hunk in hunks(Side(cut(ours), len(ours)), Side(cut(theirs, 2), len(theirs))):
        ledger.note(hunk.missing, () if hunk.is_front else hunk.extra, hunk.found_at)
    ledger.settle_moved()
    ledger.settle_expected(expected)
    return {item.kind: item.lines for item in ledger.differences()}


DAMAGES = [
    pytest.param(LINES, {}, id="none"),
    pytest.param(LINES[:90] + LINES[91:], {Kind.MISSING: 1}, id="a line removed"),
    pytest.param(LINES[:90] + LINES[120:], {Kind.MISSING: 30}, id="many removed"),
    pytest.param(LINES[:90] + LINES[89:], {Kind.REPEATED: 1}, id="a line doubled"),
    pytest.param(LINES + LINES[10:20], {Kind.REPEATED: 10}, id="lines again at the end"),
    pytest.param(
        [*LINES[:90], LINES[91], LINES[90], *LINES[92:]], {Kind.REORDERED: 2}, id="swapped"
    ),
    pytest.param(LINES[:50] + LINES[60:] + LINES[50:60], {Kind.REORDERED: 10}, id="moved far"),
    pytest.param(LINES[:-1], {Kind.MISSING: 1}, id="the last one gone"),
    pytest.param([*LINES[:-1], LINES[-1][:9]], {Kind.TORN: 1}, id="the last one cut"),
    pytest.param([*LINES[:90], b"line 00090 of A log\n", *LINES[91:]], {Kind.TORN: 1}, id="a byte"),
    pytest.param([*LINES[:90], b"stranger\n", *LINES[90:]], {Kind.FOREIGN: 1}, id="a stranger's"),
    pytest.param([*LINES, b"stranger\n"], {Kind.FOREIGN: 1}, id="a stranger's at the end"),
    pytest.param([b"older %d\n" % n for n in range(99)] + LINES, {}, id="older ones in front"),
    pytest.param(
        [b"older\n", *LINES[:9], *LINES[10:]], {Kind.MISSING: 1}, id="older, and one removed"
    ),
    pytest.param([], {Kind.MISSING: 200}, id="nothing there"),
]


@pytest.mark.parametrize("window", [64, 1000, 4_000_000])
@pytest.mark.parametrize(("there", "wrong"), DAMAGES)
def test_each_damage_is_named(
    there: list[bytes], wrong: dict[Kind, int], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_WINDOW", window)

    named = found(LINES, there)

    if window > 100_000:
        assert named == wrong
    else:  # what does not fit into a window may be named otherwise, and is never passed over
        assert bool(named) == bool(wrong)


@pytest.mark.parametrize("seed", range(60))
def test_no_random_damage_is_passed_over_and_every_line_is_accounted_for(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(compare, "_WINDOW", chance.choice([100, 700, 100_000]))
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
    ours, theirs = b"".join(expected), b"".join(there)

    parts = list(hunks(Side(cut(ours), len(ours)), Side(cut(theirs), len(theirs))))

    assert bool(parts) == (ours != theirs)
    less = len(ours) - sum(len(line) for hunk in parts for line in hunk.missing)
    assert less == len(theirs) - sum(len(line) for hunk in parts for line in hunk.extra)


def test_lines_received_before_the_streams_first_are_not_missing() -> None:
    ledger = Ledger()
    ledger.note([b"sent again\n", b"lost\n"], [], 0)

    ledger.settle_older([b"sent again\n"])

    assert [(item.kind, item.lines) for item in ledger.differences()] == [(Kind.MISSING, 1)]
