from pathlib import Path

import pytest
import zstandard

from bench.backlog import LINE_BYTES, backlog, lines_of_length, write_backlog
from bench.table import table
from tests.support.lines import LogLines


def test_no_line_is_like_another_and_each_begins_with_its_tag() -> None:
    source = LogLines("web01/app.log", seed=1)

    lines = (source.take(5000) + source.take(1)).split(b"\n")[:-1]

    assert len(lines) == len(set(lines)) == source.count
    assert [line.split()[:2] for line in lines[:2]] == [
        [b"web01/app.log", b"00000000"],
        [b"web01/app.log", b"00000001"],
    ]
    assert all(line.startswith(b"web01/app.log ") for line in lines)


def test_the_same_seed_gives_the_same_lines_however_they_are_taken() -> None:
    one, other = LogLines("a", seed=7), LogLines("a", seed=7)
    whole = one.take(300)

    parts = b""
    while other.count < one.count:
        parts += other.take(1)

    assert parts == whole
    assert LogLines("a", seed=8).take(300) != whole


def test_the_lines_hold_stack_traces_and_names_in_other_scripts() -> None:
    text = LogLines("a", seed=1).take(3000).decode()

    assert "Traceback (most recent call last):" in text
    assert not text.isascii()


@pytest.mark.parametrize("lines", [1, 9_999, 10_000, 10_001, 50_000])
def test_a_backlog_has_that_many_unique_lines_of_the_same_length(
    tmp_path: Path, lines: int
) -> None:
    path = tmp_path / "backlog"

    write_backlog(path, lines)

    content = path.read_bytes().split(b"\n")[:-1]
    assert len(content) == len(set(content)) == lines
    assert {len(line) for line in content} == {LINE_BYTES - 1}


def test_a_backlog_packs_like_a_log_and_not_like_padding() -> None:
    text = b"".join(backlog(10_000))[: 256 * 1024]

    assert 3 < len(text) / len(zstandard.compress(text)) < 8


def test_a_table_lines_up() -> None:
    assert table(["host", "lines"], [["web01", "5"], ["a", "12345"]]) == (
        "host   lines\n-----  -----\nweb01      5\na      12345"
    )


@pytest.mark.parametrize("length", [20, 200, 100_000])
def test_lines_of_a_length_have_that_length_and_are_all_different(length: int) -> None:
    lines = list(lines_of_length(50, length))

    assert {len(line) for line in lines} == {length}
    assert len(set(lines)) == 50
    assert all(line.index(b"\n") == length - 1 for line in lines)


def test_a_line_too_short_for_its_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        list(lines_of_length(1, 11))
