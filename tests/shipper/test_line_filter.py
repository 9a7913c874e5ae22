"""Filtered lines: which are shipped, and how blocks cover the others."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nats_logship.wire.expressions import expression
from nats_logship.wire.positions import Cursor, Positions
from nats_logship.wire.records import parse_records
from receiver.consume.judging import judge
from shipper.line_filter import ExpressionFilter, Rules
from shipper.sources.block import Block
from shipper.sources.files.cutter import end_of_run
from tests.shipper.shipped import block, origins

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
        pytest.param(
            *(("(?P<n>G)ET", "(?P<n>P)UT"), (), b"GET /\r\nPUT /a\nDEBUG GET x\n"),
            id="two groups of one name",
        ),
    ],
)
def test_rules_select_lines(
    include: tuple[str, ...], exclude: tuple[str, ...], left: bytes
) -> None:
    assert Rules.of(include, exclude).apply(RUN) == left


ATOMS = (
    *(rb"a", rb"b", rb".", rb"[ab]", rb"[^a]", rb"[^\n]", rb"[\x00-\x1f]", rb"[\]\-^]", rb"[]a]"),
    *(rb"\s", rb"\S", rb"\w", rb"\W", rb"\d", rb"\D", rb"\b", rb"\n", rb"\r", rb"\x0a", rb"\012"),
    *(rb"^", rb"$", rb"\A", rb"\Z", rb"(?m:^)", rb"(?m:$)", rb"(?s:.)", rb"(?i:A)", rb"(a)"),
    *(rb"a|b", rb"(?:a|b)", rb"(?P<n>b)", rb"\.", rb"\ ", rb"\xff", b"\xff", b"\xc3\xa4"),
    *(rb"\0", rb"{", rb"-"),
)
REPEATS = (b"", b"", b"", b"*", b"+", b"?", b"{2}", b"{1,2}", b"{,2}", b"{2,}", b"*?", b"+?", b"??")
part = st.builds(bytes.__add__, st.sampled_from(ATOMS), st.sampled_from(REPEATS))
some_line = st.lists(st.sampled_from([*b"aabb .-A\r\xff\xc3\xa4\t1{\0"]), max_size=6).map(bytes)


@settings(max_examples=500)
@given(st.lists(part, min_size=1, max_size=4), st.lists(some_line, min_size=1, max_size=6))
def test_an_expression_finds_in_whole_blocks_what_python_finds_line_by_line(
    parts: list[bytes], lines: list[bytes]
) -> None:
    pattern = b"".join(parts)
    try:
        found = re.compile(pattern).search
        searched = expression(pattern.decode("utf-8", "surrogateescape"))
    except (re.error, ValueError):  # a group name used twice, a repeated repeat
        assume(False)

    left = Rules(exclude=(searched,)).apply(b"".join(line + b"\n" for line in lines))
    assert left == b"".join(line + b"\n" for line in lines if not found(line))
    assert Rules((searched,)).apply(b"\n".join(lines)) == (
        b"\n".join(line for line in lines if found(line))
        + b"\n" * (any(map(found, lines[:-1])) and not found(lines[-1]))
    )


some_record = st.lists(st.sampled_from([b"s", b"sx", b" c", b" x", b"e", b"ex"]), max_size=12)


@given(some_record, st.sampled_from(["start:^s", "end:^e"]))
def test_a_record_is_shipped_if_one_of_its_lines_is(lines: list[bytes], named: str) -> None:
    records, whole = parse_records(named), list[bytes]()
    for line in lines:
        before = whole[-1].rstrip(b"\n").rpartition(b"\n")[2] if whole else b""
        begins = line.startswith(b"s") if named[0] == "s" else before.startswith(b"e")
        whole[-1:] = (
            [*whole[-1:], line + b"\n"] if begins else [b"".join(whole[-1:]) + line + b"\n"]
        )
    run = b"".join(whole)

    assert records
    assert records.split(run) == whole
    with_x, without = (
        [one for one in whole if b"x" in one],
        [one for one in whole if b"x" not in one],
    )
    assert Rules.of(("x",), ()).apply(run, records) == b"".join(with_x)
    assert Rules.of((), ("x",)).apply(run, records) == b"".join(without)


@pytest.mark.parametrize(
    "text", ["(?=a)", "(?<!a)b", r"(a)\1", "a++", "(?>a)", r"\C", r"\Qa\E", "(?-m)^"]
)
def test_expressions_without_a_bounded_time_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'.*' is not a regular expression of RE2: .*(not|no) "):
        expression(text)


line = st.sampled_from([b"", b"x", b"a", b"a\r", b"xa", b"a" * 11 + b"x", b"x" + b"a" * 22])


@given(st.lists(line), st.integers(1, 12), st.integers(1, 4), st.sets(st.integers(0, 30)))
def test_blocks_of_any_size_give_the_same_lines_without_a_gap_also_after_restarts(
    lines: list[bytes], block_size: int, together: int, restarts: set[int]
) -> None:
    data = bytearray().join(line + b"\n" for line in lines)
    at, blocks, continues = 0, [], False
    while (until := end_of_run(data, at, len(data), 11 + block_size, 12)) > at:
        run = bytes(data[at:until])
        blocks.append(block(at, run, continues=continues))
        at, continues = until, not run.endswith(b"\n")
    line_filter = ExpressionFilter(Rules.of((), ("x",)))

    left, n = [], 0
    while n < len(blocks):
        left += line_filter.filter(blocks[n : n + together])
        left += line_filter.cover_left_out() if n % 2 else []
        n += together
        if left and n in restarts:
            restarts.discard(n)
            line_filter = ExpressionFilter(line_filter.rules, cursors_of(left))
            n = next((m for m, b in enumerate(blocks) if b.section.span.start >= reach(left)), n)

    first = [line if len(line) < 12 else line[:12] for line in lines]
    kept = [line for line, piece in zip(lines, first, strict=True) if b"x" not in piece]
    assert b"".join(b.lines for b in left) == b"".join(line + b"\n" for line in kept)
    reached = 0
    for b in left:
        judged = judge(reached, b.section, "web01", 1)
        assert judged.skip == 0
        assert judged.anomaly is None
        reached = b.section.span.end


def cursors_of(blocks: list[Block]) -> list[Cursor]:
    """Return the positions behind blocks, as a restart finds them."""
    advanced = Positions().advance(origins(blocks), 1)
    return list(Positions.decode(advanced.encode()).files.values())


def reach(blocks: list[Block]) -> int:
    return blocks[-1].section.span.end


def test_the_excluded_rest_of_a_file_is_covered_with_later_bytes() -> None:
    line_filter = ExpressionFilter(Rules.of((), ("x",)))
    rest = replace(block(4, b"x is", continues=False), is_rest=True)

    assert line_filter.filter([block(0, b"one\n"), rest]) == [block(0, b"one\n")]
    (covering,) = line_filter.cover_left_out()
    assert (covering.section.span.end, line_filter.cover_left_out()) == (8, [])
    for later in (line_filter, ExpressionFilter(line_filter.rules, cursors_of([covering]))):
        (left,) = later.filter([block(8, b" left out\ntwo\n", continues=True)])
        assert (left.lines, left.section.filtered) == (b"two\n", True)


def test_a_hole_covers_the_excluded_lines_before_it() -> None:
    line_filter = ExpressionFilter(Rules.of((), ("x",)))
    hole = block(6, b"", left_out=4096)

    (covering,) = line_filter.filter([block(0, b"x one\n"), hole])

    assert (covering.lines, str(covering.section.span)) == (b"", "f1:0-4102")
    assert line_filter.filter([block(4102, b"two\n")]) == [block(4102, b"two\n")]
    assert line_filter.is_idle is False
    assert line_filter.cover_left_out() == []
