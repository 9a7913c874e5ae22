"""What was destroyed against what was reported: every byte that differs is told, and what nobody can know is told apart."""

import re

import pytest

from tests.chaos.losses import Destroyed, Range, Source, audit, merged, minus, without


def _block(start: int, end: int, lines: bytes = b"") -> Destroyed:
    return Destroyed("web01", "/app.log", "f1", Range(start, end), lines or b"%d\n" % start)


def _gap(start: int, end: int) -> dict[str, object]:
    return {"host": "web01", "file_id": "f1", "start": start, "end": end}


@pytest.mark.parametrize(
    ("ranges", "others", "left"),
    [
        pytest.param([Range(0, 9)], [], [Range(0, 9)], id="nothing taken"),
        pytest.param([Range(0, 9)], [Range(0, 9)], [], id="all taken"),
        pytest.param([Range(0, 9)], [Range(3, 5)], [Range(0, 3), Range(5, 9)], id="middle"),
        pytest.param(
            [Range(0, 4), Range(6, 9)], [Range(2, 7)], [Range(0, 2), Range(7, 9)], id="two"
        ),
        pytest.param([Range(2, 4)], [Range(0, 9)], [], id="more taken than there is"),
    ],
)
def test_what_is_left_of_ranges(
    ranges: list[Range], others: list[Range], left: list[Range]
) -> None:
    assert minus(ranges, others) == left


def test_ranges_that_touch_are_one() -> None:
    assert merged([Range(4, 6), Range(0, 2), Range(2, 4)]) == [Range(0, 6)]


@pytest.mark.parametrize(
    ("gaps", "says"),
    [
        pytest.param([_gap(10, 30)], None, id="exact"),
        pytest.param([_gap(10, 20), _gap(20, 30)], None, id="exact, in two pieces"),
        pytest.param([], r"20 bytes \[10, 30\) lost, and not reported", id="silent"),
        pytest.param(
            [_gap(10, 20)], r"10 bytes \[20, 30\) lost, and not", id="reported too little"
        ),
        pytest.param([_gap(10, 35)], r"5 bytes \[30, 35\) reported, and not lost", id="too much"),
        pytest.param([_gap(10, 30), _gap(10, 30)], "20 bytes are reported twice", id="twice"),
    ],
)
def test_a_byte_that_is_lost_or_reported_alone_is_a_finding(
    gaps: list[dict[str, object]], says: str | None
) -> None:
    destroyed = [_block(10, 20), _block(20, 30)]

    found = audit(destroyed, gaps, {("web01", "f1"): 40}, {"web01": b"0\n30\n"})

    assert len(found.findings) == (says is not None)
    assert re.search(says or "", " ".join(found.findings))


@pytest.mark.parametrize(
    ("block", "reached"),
    [
        pytest.param(_block(0, 10), 40, id="nothing came before it"),
        pytest.param(_block(10, 20), 10, id="nothing came behind it"),
    ],
)
def test_what_no_receiver_can_know_is_told_apart(block: Destroyed, reached: int) -> None:
    found = audit([block], [], {("web01", "f1"): reached}, {})

    assert len(found.unknowable) == 1
    assert found.findings == ()


def test_what_was_sent_again_was_not_lost() -> None:
    destroyed = [_block(10, 20, b"again\n")]

    found = audit(destroyed, [], {("web01", "f1"): 20}, {"web01": b"first\nagain\n"})

    assert (found.lost, found.findings) == ((), ())


def test_a_line_that_stands_twice_and_is_reported_once_was_lost_once() -> None:
    destroyed = [_block(6, 12, b"again\n")]

    found = audit(destroyed, [_gap(6, 12)], {}, {"web01": b"again\n"})

    assert found.lost == tuple(destroyed)


def test_lost_lines_are_left_out_where_their_file_had_them() -> None:
    sources = [Source(b"1\n2\n3\n"), Source(b"4\n5\n4\n", begins=(0, 4))]
    lost = [_block(2, 4, b"2\n"), _block(0, 2, b"4\n"), _block(0, 2, b"4\n")]

    assert without(sources, lost) == [b"1\n3\n", b"5\n"]


TELLING = b"a line that is long enough to be told from all others\n"


def test_a_short_line_of_what_nothing_came_of_is_lost_though_it_stands_elsewhere() -> None:
    head = [_block(0, 60, TELLING), _block(60, 68, b"-- MARK\n")]
    tail = [_block(100, 108, b"-- MARK\n"), _block(108, 160, b"1 " + TELLING)]

    found = audit(head + tail, [], {("web01", "f1"): 100}, {"web01": b"-- MARK\n90\n"})

    assert found.lost == (*head, *tail)
    assert found.findings == ()


def test_of_a_beginning_that_was_sent_again_in_part_the_rest_is_lost() -> None:
    lost = [_block(0, 8, b"-- MARK\n"), _block(8, 28, b"8 " + TELLING)]
    came = [_block(28, 82, TELLING), _block(82, 90, b"-- MARK\n")]
    received = {"web01": TELLING + b"-- MARK\n"}

    found = audit(lost + came, [], {("web01", "f1"): 90}, received)

    assert found.lost == tuple(lost)


def test_what_was_destroyed_twice_was_lost_once() -> None:
    found = audit([_block(10, 20)] * 2, [_gap(10, 20)], {("web01", "f1"): 30}, {})

    assert found.lost == (_block(10, 20),)


def test_what_was_sent_again_in_other_blocks_was_not_lost() -> None:
    first, second = b"1 " + TELLING, b"2 " + TELLING
    destroyed = [_block(0, 112, first + second)]

    found = audit(destroyed, [], {("web01", "f1"): 112}, {"web01": first + b"other\n" + second})

    assert found.lost == ()


def test_what_was_sent_again_as_another_file_was_not_lost() -> None:
    destroyed = [_block(0, 60, TELLING), _block(60, 68, b"-- MARK\n")]

    found = audit(destroyed, [], {}, {"web01": TELLING + b"-- MARK\n"})

    assert found.lost == ()
