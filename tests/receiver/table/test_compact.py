"""How many files days and hours have in the end, at full size: only their sizes are simulated."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from receiver.table.compact import find_groups
from receiver.table.parquet import KnownFile

_DAY = 2_000_000_000  # bytes in Parquet of 10 GB of lines
_BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


def add(files: list[KnownFile], size: int, begins: str, ends: str) -> None:
    day = datetime.fromisoformat(begins).date()
    files.append(KnownFile(f"{begins} {len(files)} {size}", day, size, 1, begins, ends))


def merge(files: list[KnownFile], now: datetime) -> int:
    """Merge what is due, and return the bytes that were written for that."""
    written = 0
    while groups := find_groups(sorted(files, key=lambda one: (one.day, one.begins)), now):
        for group in groups:
            for one in group:
                files.remove(one)
            size = sum(one.size for one in group)
            add(files, size, group[0].begins, max(one.ends for one in group))
            written += size
    return written


@pytest.mark.parametrize(
    "bytes_of",
    [
        lambda _: _DAY // 1440,
        lambda minute: _DAY * (1 + minute % 7) // 4 // 1440,
        lambda minute: _DAY // 60 * (600 <= minute < 660),
        lambda minute: _DAY // 40 * (600 <= minute < 640),
    ],
    ids=["even", "uneven", "in an hour", "large rounds"],
)
def test_a_closed_hour_has_few_files_and_a_closed_day_fewer(
    bytes_of: Callable[[int], int],
) -> None:
    files, hours, written = list[KnownFile](), Counter[str](), 0
    for minute in range(36 * 60):
        begins = _BEGIN + minute * _MINUTE
        if size := bytes_of(minute % 1440):
            add(files, size, begins.isoformat(), (begins + _MINUTE / 2).isoformat())
        written += merge(files, begins + _MINUTE)
        if minute % 60 == 7:  # the hour before is closed
            hour = (begins - timedelta(hours=1)).isoformat()[:13]
            hours[hour] = sum(one.begins[:13] == hour for one in files)
    of_day = [one for one in files if one.day == _BEGIN.date()]

    assert max(hours.values()) <= 20
    assert len(of_day) <= 10
    assert sum(one.size for one in of_day) == sum(map(bytes_of, range(1440)))
    assert written < 2.5 * sum(one.size for one in files), "no byte is merged again and again"
