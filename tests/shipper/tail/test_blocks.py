"""Cutting bytes into runs of whole lines."""

from hypothesis import given
from hypothesis import strategies as st

import shipper.tail.reader

BLOCK, LINE = 16, 40
hostile = st.lists(st.sampled_from([b"\n", b"\r\n", b"\0", b"\xff", b"abc", b"x" * 15, b"y" * 41]))


def cut(data: bytes, start: int, block_size: int, max_line: int) -> list[bytes]:
    # what stands behind the end was left there by an earlier read
    return shipper.tail.reader.cut(
        bytearray(data + b"\nold\n"), start, len(data), block_size, max_line
    )


def test_an_unfinished_line_is_left() -> None:
    assert cut(b"one\ntw", 0, BLOCK, LINE) == [b"one\n"]


def test_nothing_but_an_unfinished_line_gives_nothing() -> None:
    assert cut(b"one", 0, BLOCK, LINE) == []


def test_a_line_longer_than_a_block_is_a_block_of_its_own() -> None:
    line = b"x" * 30 + b"\n"

    assert cut(b"a\n" + line + b"b\n", 0, BLOCK, LINE) == [b"a\n", line, b"b\n"]


def test_a_line_longer_than_the_longest_comes_in_pieces() -> None:
    line = b"x" * 90 + b"\n"

    assert cut(line, 0, BLOCK, LINE) == [line[:40], line[40:80], line[80:]]


@given(hostile, st.integers(0, 5))
def test_what_is_cut_is_a_prefix_and_the_rest_has_no_whole_line(
    parts: list[bytes], start: int
) -> None:
    data = b"".join(parts)

    runs = cut(data, start, BLOCK, LINE)

    whole = b"".join(runs)
    rest = data[start + len(whole) :]
    assert data[start:].startswith(whole)
    assert b"\n" not in rest
    assert len(rest) <= LINE
    assert all(len(run) <= LINE for run in runs)


@given(hostile, st.integers(LINE + 1, 200))
def test_any_chunking_gives_the_same_bytes(parts: list[bytes], chunk: int) -> None:
    data = b"".join(parts)
    offset, got = 0, []

    while runs := cut(data[offset : offset + chunk], 0, BLOCK, LINE):
        got += runs
        offset += sum(map(len, runs))

    assert b"".join(got) == b"".join(cut(data, 0, BLOCK, LINE))


@given(hostile.map(b"".join))
def test_newlines_are_counted_however_many_there_are(data: bytes) -> None:
    assert shipper.tail.reader.count_lines(data) == data.count(b"\n")
    assert shipper.tail.reader.count_lines(data * 100) == data.count(b"\n") * 100
