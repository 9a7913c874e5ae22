"""Periods of rotation by the clock of a time zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.storage.rotation import ALWAYS, Calendar, Period

BERLIN = ZoneInfo("Europe/Berlin")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")  # puts its clock back by half an hour
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LENGTHS = [HOUR / 4, HOUR, 1.5 * HOUR, 6 * HOUR, 7 * HOUR, DAY, 1.5 * DAY, 7 * DAY, 30 * DAY]


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000_000_000


def period(every: timedelta, zone: ZoneInfo, moment: str) -> tuple[str, str]:
    found = Calendar(every, zone).period(at(moment))
    begin, end = (
        datetime.fromtimestamp(edge / 1e9, zone).isoformat(timespec="minutes")
        for edge in (found.begin, found.end)
    )
    return begin, end


@pytest.mark.parametrize(
    ("every", "moment", "begin", "end"),
    [
        pytest.param(
            DAY,
            "2026-11-21T00:30+01:00",
            "2026-11-21T00:00+01:00",
            "2026-11-22T00:00+01:00",
            id="day",
        ),
        pytest.param(
            DAY,
            "2026-03-29T12:00+02:00",
            "2026-03-29T00:00+01:00",
            "2026-03-30T00:00+02:00",
            id="23 h",
        ),
        pytest.param(
            DAY,
            "2026-10-25T12:00+01:00",
            "2026-10-25T00:00+02:00",
            "2026-10-26T00:00+01:00",
            id="25 h",
        ),
        pytest.param(
            HOUR,
            "2026-10-25T02:59+02:00",
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:00+01:00",
            id="hour",
        ),
        pytest.param(
            HOUR,
            "2026-10-25T02:01+01:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T03:00+01:00",
            id="again",
        ),
        pytest.param(
            HOUR / 4,
            "2026-10-25T02:20+01:00",
            "2026-10-25T02:15+01:00",
            "2026-10-25T02:30+01:00",
            id="a quarter of the hour that comes again",
        ),
        pytest.param(
            HOUR,
            "2026-03-29T01:10+01:00",
            "2026-03-29T01:00+01:00",
            "2026-03-29T03:00+02:00",
            id="left out",
        ),
        pytest.param(
            6 * HOUR,
            "2026-10-25T02:30+01:00",
            "2026-10-25T00:00+02:00",
            "2026-10-25T06:00+01:00",
            id="6h",
        ),
        pytest.param(
            7 * HOUR,
            "2026-11-21T22:00+01:00",
            "2026-11-21T21:00+01:00",
            "2026-11-22T00:00+01:00",
            id="7h",
        ),
        pytest.param(
            7 * DAY,
            "2026-11-22T23:59+01:00",
            "2026-11-16T00:00+01:00",
            "2026-11-23T00:00+01:00",
            id="Monday",
        ),
    ],
)
def test_periods_go_by_the_clock_on_the_wall(
    every: timedelta, moment: str, begin: str, end: str
) -> None:
    assert period(every, BERLIN, moment) == (begin, end)


def test_an_hour_in_which_half_an_hour_is_put_back_is_cut_there() -> None:
    first = period(HOUR, LORD_HOWE, "2026-04-05T01:10+11:00")
    second = period(HOUR, LORD_HOWE, "2026-04-05T01:40+10:30")

    assert first == ("2026-04-05T01:00+11:00", "2026-04-05T01:30+10:30")
    assert second == ("2026-04-05T01:30+10:30", "2026-04-05T02:00+10:30")


@given(
    st.sampled_from(ZONES),
    st.sampled_from(LENGTHS),
    st.integers(at("2005-01-01"), at("2040-01-01")),
)
def test_every_moment_lies_in_one_period_and_they_neither_overlap_nor_leave_a_hole(
    zone: str, every: timedelta, moment: int
) -> None:
    calendar = Calendar(every, ZoneInfo(zone))

    found = calendar.period(moment)

    assert found.begin <= moment < found.end
    for edge in (found.begin, found.end - 1):
        assert Calendar(every, ZoneInfo(zone)).period(edge) == found
    assert calendar.period(found.end).begin == found.end
    assert calendar.period(found.begin - 1).end == found.begin


def test_no_length_is_no_period() -> None:
    assert Calendar(timedelta()).period(at("2026-11-21")) == ALWAYS


@pytest.mark.parametrize("moment", [-(10**18), 2**63, 2**80], ids=["before", "after", "far after"])
def test_a_file_time_that_no_calendar_has_is_no_reason_to_die(moment: int) -> None:
    assert isinstance(Calendar(DAY, BERLIN).period(moment), Period)
