"""What was destroyed against what was reported: every byte that differs is told, and what nobody can know is told apart."""

import re

import pytest

from tests.chaos.losses import Destroyed, Range, audit, minus

FILE = ("web01", "f1")


def _block(start: int, end: int) -> Destroyed:
    return Destroyed(
        "web01", "f1", start, b"".join(b"line %04d\n" % n for n in range(start, end, 10))
    )


def _gap(start: int, end: int) -> dict[str, object]:
    return {"host": "web01", "file_id": "f1", "start": start, "end": end}


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], [Range(0, 9)]),
        ([Range(0, 9)], []),
        ([Range(3, 5)], [Range(0, 3), Range(5, 9)]),
        ([Range(2, 4), Range(6, 12)], [Range(0, 2), Range(4, 6)]),
    ],
)
def test_what_is_left_of_a_range(others: list[Range], left: list[Range]) -> None:
    assert minus([Range(0, 9)], others) == left


@pytest.mark.parametrize(
    ("gaps", "says"),
    [
        pytest.param([_gap(10, 30)], None, id="exact"),
        pytest.param([_gap(10, 20), _gap(20, 30)], None, id="exact, in two pieces"),
        pytest.param([], r"20 bytes \[10, 30\) lost, and not reported", id="silent"),
        pytest.param([_gap(10, 20)], r"10 bytes \[20, 30\) lost, and not", id="too little"),
        pytest.param([_gap(10, 35)], r"5 bytes \[30, 35\) reported, and not lost", id="too much"),
        pytest.param([_gap(10, 30), _gap(10, 30)], "20 bytes are reported twice", id="twice"),
    ],
)
def test_a_byte_that_is_lost_or_reported_alone_is_a_finding(
    gaps: list[dict[str, object]], says: str | None
) -> None:
    found = audit([_block(10, 20), _block(20, 30)], gaps, {FILE: 40}, {"web01": b"other\n"})

    assert found.size == 20
    assert len(found.findings) == (says is not None)
    assert re.search(says or "", " ".join(found.findings))


@pytest.mark.parametrize(("start", "reached"), [(0, 40), (10, 10)])
def test_what_no_receiver_can_know_is_told_apart(start: int, reached: int) -> None:
    found = audit([_block(start, start + 10)], [], {FILE: reached}, {})

    assert (len(found.unknowable), found.findings) == (1, [])


def test_what_was_sent_again_was_not_lost_and_what_was_destroyed_twice_was_lost_once() -> None:
    again = _block(10, 20)
    received = {"web01": b"first\n" + again.lines}

    found = audit([_block(10, 30), _block(20, 30)], [_gap(20, 30)], {FILE: 40}, received)

    assert (found.size, found.findings) == (10, [])


def test_once_what_was_known_was_harmed_one_gap_of_a_file_may_be_forgotten() -> None:
    found = audit([_block(10, 20), _block(30, 40)], [], {FILE: 50}, {}, {"web01": 1})

    assert (len(found.unknowable), len(found.findings)) == (1, 1)
