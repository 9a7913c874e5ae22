"""Rotation by time: by the clock of a zone, and by when the broker stored the lines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.consume.assignment import Destination
from receiver.storage.recovery import WrittenBatch, store_batch
from receiver.storage.rotation import Calendar
from tests.receiver.stored import opened

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LENGTHS = [HOUR / 4, HOUR, 1.5 * HOUR, 6 * HOUR, 7 * HOUR, DAY, 1.5 * DAY, 7 * DAY, 30 * DAY]


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000_000_000


def period(every: timedelta, zone: ZoneInfo, moment: str) -> tuple[str, str]:
    found = Calendar(every, zone).period(at(moment))
    edges = (datetime.fromtimestamp(edge / 1e9, zone) for edge in (found.begin, found.end))
    begin, end = (edge.isoformat(timespec="minutes") for edge in edges)
    return begin, end


@pytest.mark.parametrize(
    ("every", "moment", "begin", "end"),
    [
        # 25 hours, the hour that comes twice, a quarter of it, the rest of a day, a week
        (DAY, "10-25T12:00+01:00", "10-25T00:00+02:00", "10-26T00:00+01:00"),
        (HOUR, "10-25T02:01+01:00", "10-25T02:00+01:00", "10-25T03:00+01:00"),
        (HOUR / 4, "10-25T02:20+01:00", "10-25T02:15+01:00", "10-25T02:30+01:00"),
        (7 * HOUR, "11-21T22:00+01:00", "11-21T21:00+01:00", "11-22T00:00+01:00"),
        (7 * DAY, "11-22T23:59+01:00", "11-16T00:00+01:00", "11-23T00:00+01:00"),
    ],
)
def test_periods_follow_a_zones_clock(every: timedelta, moment: str, begin: str, end: str) -> None:
    assert period(every, BERLIN, f"2026-{moment}") == (f"2026-{begin}", f"2026-{end}")


@given(
    st.sampled_from(ZONES),
    st.sampled_from(LENGTHS),
    st.integers(at("2005-01-01"), at("2040-01-01")),
)
def test_every_moment_is_in_exactly_one_period(zone: str, every: timedelta, moment: int) -> None:
    calendar = Calendar(every, ZoneInfo(zone))

    found = calendar.period(moment)

    assert found.begin <= moment < found.end
    for edge in (found.begin, found.end - 1):
        assert Calendar(every, ZoneInfo(zone)).period(edge) == found
    assert calendar.period(found.end).begin == found.end
    assert calendar.period(found.begin - 1).end == found.begin


@pytest.mark.parametrize(
    ("pieces", "files"),
    [
        (
            [(5, 0, b"a\n"), (6, -1, b"b\n"), (6, 0, b"c\n"), (9, 0, b"d\n")],
            {"web01.log.000001": b"a\nb\n", "web01.log.000002": b"c\n", "web01.log": b"d\n"},
        ),
        ([(6, 0, b"a\n"), (5, 0, b"b\n"), (6, 1, b"c\n")], {"web01.log": b"a\nb\nc\n"}),
    ],
    ids=["another hour", "a clock that goes back"],
)
def test_lines_of_a_later_hour_begin_another_file(
    tmp_path: Path, pieces: list[tuple[int, int, bytes]], files: dict[str, bytes]
) -> None:
    """Write pieces as batches of one piece each, as separate tasks would."""
    destination = Destination(tmp_path, tmp_path / ".state", 0, (), HOUR)
    for hour, more, piece in pieces:
        moment = hour * 3_600_000_000_000 + more
        with opened(destination) as partition, partition.open_output() as output:
            live = partition.names.choose("web01", None, moment)
            output.buffer(live, piece, moment)
            output.flush()
            output.sync()
            written = WrittenBatch(output.rows({}), partition.spans)
            store_batch(partition.store, partition.describe_batch(1, 1), written)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == files
