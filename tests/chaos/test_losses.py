"""What was destroyed against what was reported: every byte that differs is told, and what nobody can know is told apart."""

import re

import pytest

from tests.chaos.losses import Destroyed, Source, audit, without
from tests.chaos.ranges import Range, merged, minus


def _block(start: int, end: int, lines: bytes = b"", file_id: str = "f1") -> Destroyed:
    return Destroyed("web01", "/app.log", file_id, Range(start, end), lines or b"%d\n" % start)


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
    lost = [_block(2, 4, b"2\n"), _block(0, 2, b"4\n", "f2"), _block(0, 2, b"4\n", "f3")]

    assert without(sources, lost) == [b"1\n3\n", b"5\n"]


def test_lines_that_were_lost_of_two_ids_of_one_file_are_left_out_once() -> None:
    sources = [Source(b"1\n2\n3\n4\n")]
    lost = [_block(0, 4, b"1\n2\n"), _block(2, 6, b"2\n3\n", "f2")]

    assert without(sources, lost) == [b"4\n"]


def test_a_line_that_stands_in_every_file_is_left_out_where_the_others_of_its_file_stand() -> None:
    sources = [Source(b"-\n1\n-\n2\n", begins=(0, 4))]

    assert without(sources, [_block(0, 2, b"-\n"), _block(2, 4, b"2\n")]) == [b"-\n1\n"]


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


def _line(start: int) -> bytes:
    return b"%09d %b" % (start, TELLING[10:])


def _lines(start: int, end: int) -> bytes:
    return b"".join(_line(place) for place in range(start, end, len(TELLING)))


@pytest.mark.parametrize("file_id", ["f1", "f2"], ids=["as the same file", "as another file"])
def test_of_what_was_sent_again_in_other_blocks_and_lost_in_part_only_that_part_was_lost(
    file_id: str,
) -> None:
    size = len(TELLING)
    first = _block(0, 4 * size, _lines(0, 4 * size))
    again = _block(2 * size, 6 * size, _lines(2 * size, 6 * size), file_id)
    gap = {"host": "web01", "file_id": file_id, "start": 2 * size, "end": 6 * size}
    received = {"web01": _lines(0, 2 * size) + _line(6 * size)}

    found = audit([first, again], [gap], {("web01", file_id): 7 * size}, received)

    assert {one.span for one in found.lost if one.file_id == file_id} >= {Range(4 * size, 6 * size)}
    assert Range(0, 2 * size) not in {one.span for one in found.lost}
    assert found.findings == ()
    source = Source(_lines(0, 7 * size))
    assert without([source], found.lost) == [received["web01"]]


def test_a_piece_of_a_line_that_was_sent_again_was_not_lost() -> None:
    whole = _line(0)[:-1] * 3 + b"\n"
    half = len(whole) // 2
    destroyed = [_block(0, half, whole[:half]), _block(half, len(whole), whole[half:])]

    found = audit(destroyed, [], {("web01", "f1"): len(whole)}, {"web01": whole})

    assert found.lost == ()


@pytest.mark.parametrize(
    ("again", "is_lost"),
    [
        pytest.param(b"-- MARK\n", False, id="from the short line on"),
        pytest.param(b"other\n", True, id="from the line behind it on"),
    ],
)
def test_a_short_line_before_what_was_sent_again_was_lost_unless_it_stands_there(
    again: bytes, *, is_lost: bool
) -> None:
    head, mark, tail = (
        _block(0, 54, _line(0)),
        _block(54, 62, b"-- MARK\n"),
        _block(62, 116, _line(62)),
    )
    received = {"web01": b"-- MARK\n" + _line(9) + again + _line(62)}

    found = audit([head, mark, tail], [], {("web01", "f1"): 116}, received)

    assert found.lost == ((head, mark) if is_lost else (head,))


def test_a_short_line_behind_what_was_sent_again_was_lost_unless_it_stands_there() -> None:
    size = len(TELLING)
    came = _block(0, size, _line(0))
    mark = _block(size, size + 8, b"-- MARK\n")
    lost = _block(size + 8, 2 * size + 8, _line(7))

    assert audit([came, mark, lost], [], {}, {"web01": _line(0) + b"-- MARK\n"}).lost == (lost,)
    assert audit([came, mark, lost], [], {}, {"web01": _line(0)}).lost == (mark, lost)


def test_a_line_whose_pieces_between_carriage_returns_stand_in_others_was_lost() -> None:
    huge = b"huge 1 \r%b" % TELLING
    destroyed = [_block(0, len(huge), huge)]

    found = audit(destroyed, [], {}, {"web01": b"huge 2 \r%b" % TELLING})

    assert found.lost == tuple(destroyed)


def test_what_was_lost_behind_first_bytes_that_were_sent_again_is_to_be_reported() -> None:
    size = len(TELLING)
    destroyed = [_block(place, place + size, _line(place)) for place in range(0, 2 * size, size)]

    found = audit(destroyed, [], {("web01", "f1"): 3 * size}, {"web01": _line(0)})

    assert found.unknowable == ()
    assert len(found.findings) == 1


def test_a_lost_tail_behind_what_was_sent_again_is_told_apart() -> None:
    size = len(TELLING)
    destroyed = [_block(place, place + size, _line(place)) for place in range(size, 3 * size, size)]

    found = audit(destroyed, [], {("web01", "f1"): 2 * size}, {"web01": _line(size)})

    assert len(found.unknowable) == 1
    assert found.findings == ()


def test_once_what_was_known_was_harmed_one_gap_of_a_file_may_be_forgotten() -> None:
    destroyed = [_block(10, 20), _block(30, 40)]

    found = audit(destroyed, [], {("web01", "f1"): 50}, {"web01": b"0\n20\n40\n"}, {"web01": 1})

    assert len(found.unknowable) == 1
    assert len(found.findings) == 1
