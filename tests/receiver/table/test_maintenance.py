"""Maintenance by a clock that may be wrong: the days, versions and files that it removes."""

import asyncio
import os
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from nats_logship.client.connection import Connection
from receiver.table.columns import LINES
from receiver.table.gaps import GAPS
from receiver.table.location import Location
from receiver.table.log import Log
from receiver.table.maintenance import Maintenance
from receiver.table.meter import TableMeter
from receiver.table.parquet import File, write_tables

DAY = timedelta(days=1)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
FAR = 400 * DAY


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Log, Log]:
    """Return the logs of new tables `lines` and `gaps`."""
    return open_logs(tmp_path)


def open_logs(folder: Path) -> tuple[Log, Log]:
    """Open the tables as a writer that starts."""
    lines = Log(Location(str(folder / "lines")), LINES)
    gaps = Log(Location(str(folder / "gaps")), GAPS)
    lines.refresh()
    gaps.refresh()
    return lines, gaps


def write_row(log: Log, day: date) -> File:
    """Write a file with a row that was stored at noon of a day."""
    row = {"time": datetime.combine(day, time(12), UTC), "stream": "LOGS", "sequence": 1}
    row |= {"host": "web01", "line": "a line", "kind": "removed", "first": 1, "until": 2}
    rows = pa.Table.from_pylist([row], schema=log.own.file_schema)
    return write_tables([rows], day, log.location, log.own)


def add_days(log: Log, *days: date) -> None:
    log.append([write_row(log, day) for day in days], {})


def days_of(log: Log) -> list[date]:
    return [one.day for one in log.files()]


def maintain(
    logs: tuple[Log, Log], now: datetime, keep: timedelta = timedelta(), trouble: str = ""
) -> None:
    """Do what a writer does that has just started; its rounds fail if it is in trouble."""
    meter = TableMeter(lambda: 1, Connection(["nats://127.0.0.1:1"], "tests"))
    meter.note_trouble(trouble)
    maintenance = Maintenance(
        meter=meter, merge=lambda _: (), tasks=1, keep=keep, grace=timedelta(), clock=lambda: now
    )
    asyncio.run(maintenance.run(*logs))


def test_a_clock_that_is_ahead_of_every_line_removes_no_more_days(logs: tuple[Log, Log]) -> None:
    days = [NOON.date() - number * DAY for number in reversed(range(8))]
    for log in logs:
        add_days(log, *days)

    for now in (NOON, NOON + FAR):
        maintain(logs, now, keep=5 * DAY)
        assert [days_of(log) for log in logs] == [days[-6:]] * 2, now


def test_lines_of_one_day_that_is_far_ahead_of_the_others_remove_no_more_days(
    logs: tuple[Log, Log],
) -> None:
    days = [NOON.date() - number * DAY for number in reversed(range(8))]
    far = (NOON + FAR).date()  # by the clock of the broker, too
    for log in logs:
        add_days(log, *days, far)

    maintain(logs, NOON + FAR, keep=5 * DAY)
    assert [days_of(log) for log in logs] == [[*days[-6:], far]] * 2

    add_days(logs[0], far + DAY)
    maintain(logs, NOON + FAR + DAY, keep=5 * DAY)
    assert days_of(logs[0]) == [far, far + DAY]


def test_gaps_end_by_the_days_of_lines_and_are_kept_without_lines(logs: tuple[Log, Log]) -> None:
    lines, gaps = logs
    add_days(gaps, NOON.date(), (NOON + FAR).date())  # of a wrong clock

    maintain(logs, NOON + FAR, keep=5 * DAY)
    assert len(days_of(gaps)) == 2

    add_days(lines, (NOON + 7 * DAY).date())
    maintain(logs, NOON + FAR, keep=5 * DAY)
    assert days_of(gaps) == [(NOON + FAR).date()]


def test_a_clock_that_is_ahead_of_every_line_removes_no_old_versions(
    logs: tuple[Log, Log], tmp_path: Path
) -> None:
    lines, _ = logs
    now = datetime.now(UTC)  # noqa: TID251 - delta-rs has no other clock
    folder = tmp_path / "lines" / "_delta_log"
    first = folder / f"{0:020}.json"
    for _ in range(2):
        for version in range(25):
            lines.append((), {"a": lines.version * 100 + version})
        add_days(lines, now.date())
        lines.checkpoint()
    for path in folder.iterdir():
        os.utime(path, ns=(0, path.stat().st_mtime_ns - 3 * 86_400 * 10**9))

    maintain(open_logs(tmp_path), now + FAR)
    assert first.exists()
    maintain(open_logs(tmp_path), now)
    assert not first.exists()
    assert len(days_of(open_logs(tmp_path)[0])) == 2


@pytest.mark.parametrize(
    ("ahead", "trouble", "left"),
    [
        pytest.param(FAR, "", 2, id="ahead"),
        pytest.param(FAR, "no space", 1, id="rounds that fail leave files"),
        pytest.param(2 * DAY, "", 1, id="two days without lines"),
    ],
)
def test_a_clock_that_is_ahead_of_every_line_deletes_no_old_files(
    logs: tuple[Log, Log], tmp_path: Path, ahead: timedelta, trouble: str, left: int
) -> None:
    lines, _ = logs
    now = datetime.now(UTC)  # noqa: TID251 - delta-rs has no other clock
    add_days(lines, now.date() - DAY, now.date())
    lines.remove(lines.files()[:1])

    maintain(logs, now + ahead, trouble=trouble)

    assert len([*(tmp_path / "lines").rglob("date=*/*.parquet")]) == left
