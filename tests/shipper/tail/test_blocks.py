"""Cutting what was read into runs of whole lines, and counting these."""

from hypothesis import given
from hypothesis import strategies as st

from shipper.tail.reader import count_lines, end_of_run

MOST, LINE = 60, 40
hostile = st.lists(st.sampled_from([b"\n", b"\r\n", b"\0", b"\xff", b"abc", b"x" * 15, b"y" * 41]))


def cut(data: bytes, start: int = 0) -> list[bytes]:
    # what stands behind the end was left there by an earlier read
    buffer, runs = bytearray(data + b"\nold\n"), []
    while (until := end_of_run(buffer, start, len(data), MOST, LINE)) > start:
        runs.append(data[start:until])
        start = until
    return runs


@given(hostile, st.integers(0, 5))
def test_what_is_cut_is_a_prefix_and_the_rest_has_no_whole_line(
    parts: list[bytes], start: int
) -> None:
    data = b"".join(parts)

    runs = cut(data, start)

    rest = data[start + sum(map(len, runs)) :]
    assert data[start:] == b"".join(runs) + rest
    assert b"\n" not in rest
    assert len(rest) <= LINE
    assert all(len(run) == LINE or (run.endswith(b"\n") and len(run) <= MOST) for run in runs)


@given(hostile.map(b"".join))
def test_newlines_are_counted_however_many_there_are(data: bytes) -> None:
    assert count_lines(data) == data.count(b"\n")
    assert count_lines(data * 100) == data.count(b"\n") * 100
