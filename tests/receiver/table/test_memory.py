"""What tasks of a table hold: a part of what they write, and nothing when they have ended."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from receiver.table.columns import LINES, SectionLines, make_rows
from receiver.table.compact import Group, merge_files
from receiver.table.location import Location
from receiver.table.parquet import File, KnownFile, write_tables

_MIB = 1024 * 1024
_FILES = 16
_DAY = date(2026, 11, 20)


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    """Count what is taken of Arrow's memory during the test."""
    before = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(before)


def _write(number: int, lines: Location) -> KnownFile:
    """Write a row group of 16 MiB of lines, of four hosts."""
    line = b"x" * 99 + b"\n"
    parts = [
        SectionLines(f"web{host}", "/var/log/a", number, 10**18, 0, line * 40_000, 40_000)
        for host in range(4)
    ]
    made = write_tables(iter([make_rows(parts, "LOGS/x")]), _DAY, lines, LINES)
    return KnownFile(made.path, _DAY, made.size, made.rows, "", "")


def test_a_merge_holds_a_page_of_each_file_and_never_all_rows(
    tmp_path: Path, pool: pa.MemoryPool
) -> None:
    lines = Location(str(tmp_path))
    files = tuple(_write(number, lines) for number in range(_FILES))
    written = pool.max_memory()

    _, merged = merge_files(Group(files, lines, LINES))

    assert isinstance(merged, File)
    assert merged.rows == _FILES * 160_000
    assert written < 100 * _MIB
    assert pool.max_memory() < 300 * _MIB, "the rows of all files are some 480 MiB"
    assert not pool.bytes_allocated()
