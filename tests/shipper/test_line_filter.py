"""Leaving out lines: which are left, and how the blocks that are left cover the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.consume.judging import judge
from shipper.line_filter import LineFilter, Rules
from shipper.settings import expression
from shipper.tail.reader import end_of_run
from tests.shipper.shipped import block


def rules(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> Rules:
    return Rules(tuple(map(expression, include)), tuple(map(expression, exclude)))


RUN = b"GET /\r\nPUT /a\n\nDEBUG GET x\n\xff\xfe\0\n"


@pytest.mark.parametrize(
    ("include", "exclude", "left"),
    [
        pytest.param((), (), RUN, id="none"),
        pytest.param(("GET",), (), b"GET /\r\nDEBUG GET x\n", id="include"),
        pytest.param(("PUT", "^$"), (), b"PUT /a\n\n", id="any of several, in order"),
        pytest.param(("^GET", "GET"), (), b"GET /\r\nDEBUG GET x\n", id="found twice, left once"),
        pytest.param((), ("GET", "^$"), b"PUT /a\n\xff\xfe\0\n", id="exclude any"),
        pytest.param(("GET",), ("DEBUG",), b"GET /\r\n", id="include first, then exclude"),
        pytest.param(("/$",), (), b"", id="a carriage return belongs to its line"),
        pytest.param((), ("",), b"", id="all"),
    ],
)
def test_rules_leave_lines(include: tuple[str, ...], exclude: tuple[str, ...], left: bytes) -> None:
    assert rules(include, exclude).apply(RUN) == left


line = st.sampled_from(
    [b"", b"x", b"a", b"a\r", b"xa", b"aaaaaaaaaaax", b"xaaaaaaaaaaaaaaaaaaaaaa"]
)


@given(st.lists(line), st.integers(1, 12), st.integers(1, 4))
def test_any_cutting_leaves_the_same_lines_and_blocks_that_follow_each_other(
    lines: list[bytes], block_size: int, together: int
) -> None:
    data = bytearray().join(line + b"\n" for line in lines)
    at, blocks, continues = 0, [], False
    while (until := end_of_run(data, at, len(data), 11 + block_size, 12)) > at:
        run = bytes(data[at:until])
        blocks.append(block(at, run, continues=continues))
        at, continues = until, not run.endswith(b"\n")
    line_filter = LineFilter(rules(exclude=("x",)))

    left = []
    for n in range(0, len(blocks), together):
        left += line_filter.filter(blocks[n : n + together])
        left += line_filter.left_out() if n % 2 else []

    first = [line if len(line) < 12 else line[:12] for line in lines]
    kept = [line for line, piece in zip(lines, first, strict=True) if b"x" not in piece]
    assert b"".join(b.lines for b in left) == b"".join(line + b"\n" for line in kept)
    reached = 0
    for b in left:
        judged = judge(reached, b.section, "web01", 1)
        assert judged.skip == 0
        assert judged.finding is None
        reached = b.section.span.end


def test_the_rest_of_a_file_is_left_out_and_covered_with_what_comes_behind_it() -> None:
    line_filter = LineFilter(rules(exclude=("x",)))
    rest = replace(block(4, b"x is", continues=False), is_rest=True)

    assert line_filter.filter([block(0, b"one\n"), rest]) == [block(0, b"one\n")]
    assert [one.section.span.end for one in line_filter.left_out()] == [8]
    assert line_filter.left_out() == []
    (left,) = line_filter.filter([block(8, b" left out\ntwo\n", continues=True)])
    assert (left.lines, left.section.filtered) == (b"two\n", True)


def test_a_hole_covers_what_was_left_out_before_it() -> None:
    line_filter = LineFilter(rules(exclude=("x",)))
    hole = block(6, b"", left_out=4096)

    (covering,) = line_filter.filter([block(0, b"x one\n"), hole])

    assert (covering.lines, str(covering.section.span)) == (b"", "f1:0-4102")
    assert line_filter.filter([block(4102, b"two\n")]) == [block(4102, b"two\n")]
    assert line_filter.is_idle is False
    assert line_filter.left_out() == []
