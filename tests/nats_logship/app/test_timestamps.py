"""Times are the same as nanoseconds, as datetimes and as text, and lose no digit on the way."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.app.timestamps import format_datetime, format_time, parse_time, to_datetime

MOMENTS = st.integers(-(2**61), 2**63 - 1)
"""Nanoseconds since the epoch; 62 bits before it, as many as nats-server counts after it."""


@given(MOMENTS)
def test_nanoseconds_come_back_from_their_text(moment: int) -> None:
    assert parse_time(format_time(moment, "nanoseconds")) == moment


@given(MOMENTS, st.integers(1, 9))
def test_a_fraction_of_any_length_is_read_exactly(moment: int, digits: int) -> None:
    kept = moment - moment % 10 ** (9 - digits)
    text = format_time(kept, "nanoseconds")[: -1 - (9 - digits)] if digits < 9 else None
    assert parse_time(f"{text}Z" if text else format_time(kept, "nanoseconds")) == kept


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("1969-12-31T19:00:01.5-05:00", 1_500_000_000),
        ("1970-01-01T00:00:01", 1_000_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
    ],
)
def test_a_time_of_any_zone_is_read(text: str, moment: int) -> None:
    assert parse_time(text) == moment


@pytest.mark.parametrize("text", ["", "now", "1970-13-01T00:00:00Z", "0"])
def test_any_other_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kind is what callers rely on
        parse_time(text)


@given(MOMENTS)
def test_a_datetime_is_the_moment_cut_to_microseconds(moment: int) -> None:
    text = format_datetime(to_datetime(moment))
    assert text == format_time(moment)
    assert parse_time(text) == moment - moment % 1000


def test_text_is_in_utc_and_cut_to_what_was_asked_for() -> None:
    moment = datetime(2026, 11, 20, 10, 0, 0, 987_654, tzinfo=timezone(timedelta(hours=1)))
    assert format_datetime(moment, "milliseconds") == "2026-11-20T09:00:00.987Z"
    assert format_datetime(moment, "seconds") == "2026-11-20T09:00:00Z"
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("timespec", ["seconds", "microseconds", "nanoseconds"])
@pytest.mark.parametrize("moment", [10**30, -(10**30), 2**64 * 1000])
def test_a_time_that_no_calendar_has_is_written_as_a_number(moment: int, timespec: str) -> None:
    assert format_time(moment, timespec) == f"{moment} ns"
