"""Durations, moments and addresses as people write them, and counts as programs do."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.app.address import Address, parse_address
from nats_logship.app.text import format_count, format_ranges
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import (
    format_duration,
    parse_duration,
    parse_moment,
    parse_range,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("1d", 86400), ("2w", 1209600), ("250ms", 0.25), ("7", 7), (" 1D ", 86400)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "1y", "d", "-1s", "1 d", "1d x", "\u0661s", "nan", "inf", "9" * 20 + "d"]
)
def test_any_other_duration_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kind that pydantic turns into one line
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_whole_seconds_survive_format_and_parse(seconds: int) -> None:
    length = timedelta(seconds=seconds)

    assert parse_duration(format_duration(length)) == length


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        *(("5MB/s", 5_000_000), ("512 KiB/s", 524_288), ("1.5mib", 1_572_864), ("2k", 2000)),
        *((1024, 1024), ("0", 0), ("0MB/s", 0), ("none", 0)),
    ],
)
def test_a_rate_is_read(text: object, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-5MB/s", "5 apples", "5MB/h", "ib", "1e9", "nan"])
def test_any_other_rate_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate such as 5MB/s"):
        parse_rate(text)


def test_a_rate_that_would_hold_everything_back_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="'5' is less than 1KiB/s; give more, or 0"):
        parse_rate("5")


NOW = datetime(2026, 11, 21, 0, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("seq:12345", 12345), ("12345", 12345), ("earliest", 0)),
        ("1d12h", NOW - timedelta(hours=36)),
        ("2026-11-20T10:00", datetime(2026, 11, 20, 9, tzinfo=UTC)),
        ("2026-11-20 10:00-05:00", datetime(2026, 11, 20, 15, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 19, 23, tzinfo=UTC)),
        ("today", datetime(2026, 11, 20, 23, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 19, 23, tzinfo=UTC)),
        ("01:29:30", datetime(2026, 11, 21, 0, 29, 30, tzinfo=UTC)),
        ("14:03", datetime(2026, 11, 20, 13, 3, tzinfo=UTC)),  # not in the future
        ("00:15+00:00", datetime(2026, 11, 21, 0, 15, tzinfo=UTC)),
        ("00:15Z", datetime(2026, 11, 21, 0, 15, tzinfo=UTC)),
    ],
)
def test_a_moment_is_read(text: str, meant: Moment) -> None:
    assert parse_moment(text, NOW, BERLIN) == meant


@pytest.mark.parametrize(
    "text", ["", "soon", "seq:", "seq:x", "-1", "2026-13-01", "24:01", "9" * 30]
)
def test_any_other_moment_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"2026-11-20T10:00.* today.* 2h.* seq:12345"):
        parse_moment(text, NOW)


@pytest.mark.parametrize(
    "text", ["0001-01-01", "0001-01-01T08:59+09:00", "9999-12-31T23:00-02:00", "999999d"]
)
def test_a_time_that_no_calendar_has_in_utc_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_moment(text, NOW, ZoneInfo("Asia/Tokyo"))


@pytest.mark.parametrize(
    ("since", "until", "ends"),
    [
        ("01:00", "02:05", datetime(2026, 11, 21, 1, 5, tzinfo=UTC)),  # later today
        ("23:30", "00:15", datetime(2026, 11, 20, 23, 15, tzinfo=UTC)),  # over midnight
        ("yesterday", "14:05", datetime(2026, 11, 20, 13, 5, tzinfo=UTC)),
        ("2026-11-18", "00:00", datetime(2026, 11, 18, 23, tzinfo=UTC)),
        ("01:00", "01:00", datetime(2026, 11, 22, 0, tzinfo=UTC)),  # a whole day
        ("today", "1m", NOW - timedelta(minutes=1)),
        ("", "14:05", datetime(2026, 11, 20, 13, 5, tzinfo=UTC)),
        ("seq:7", "14:05", datetime(2026, 11, 20, 13, 5, tzinfo=UTC)),
        ("seq:7", "8", 8),
        ("2h", "", None),
    ],
)
def test_a_time_of_day_that_ends_a_range_is_the_first_one_in_it(
    since: str, until: str, ends: Moment | None
) -> None:
    assert parse_range(since, until, NOW, BERLIN)[1] == ends


@pytest.mark.parametrize("day", ["2026-10-25", "2026-03-29"])  # clocks are set back, and forward
def test_a_range_has_all_of_an_hour_that_clocks_show_twice_or_never(day: str) -> None:
    found = parse_range(f"{day}T02:30", f"{day}T02:45", NOW, BERLIN)
    assert found == (
        datetime.fromisoformat(f"{day}T00:30Z"),
        datetime.fromisoformat(f"{day}T01:45Z"),
    )


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("1h", "2h", "until: 2026-11-20T22:30:00Z is not after since, 2026-11-20T23:30:00Z"),
        ("today", "today", "until: 2026-11-20T23:00:00Z is not after since, 2026-11-20T23:00:00Z"),
        ("seq:7", "7", "until: sequence 7 is not after since, sequence 7"),
        ("soon", "7", "since: 'soon' is not a time"),
        ("7", "soon", "until: 'soon' is not a time"),
        ("9999-12-31T22:59", "22:00", "is not after since, 9999-12-31T21:59:00Z"),
    ],
)
def test_a_range_without_an_extent_is_refused(since: str, until: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_range(since, until, NOW, BERLIN)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4222", Address("127.0.0.1", 4222)),
        ("[::1]:4222", Address("::1", 4222)),
        ("4222", Address("127.0.0.1", 4222)),
        (":4222", Address("0.0.0.0", 4222)),
        ("broker.example.net:0", Address("broker.example.net", 0)),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "x", "a:b", "a:70000", "::1:4222", "a:-1", "a:\u0661", "a\nb:1"]
)
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)


def test_a_listener_on_all_addresses_is_reached_by_loopback() -> None:
    assert str(Address("0.0.0.0", 0).reached_at(7)) == "127.0.0.1:7"
    assert not Address("0.0.0.0", 0).is_loopback
    assert Address("127.0.0.2", 0).is_loopback
    assert not Address("127.0.0.1.attacker.example", 0).is_loopback


@pytest.mark.parametrize(
    ("count", "arguments", "text"),
    [
        *((0, ("host",), "0 hosts"), (1, ("host",), "1 host"), (1, ("byte", "were"), "1 byte was")),
        (1, ("message", "wait"), "1 message waits"),
        (2, ("message", "wait"), "2 messages wait"),
        (1234, ("line", "are", ","), "1,234 lines are"),
    ],
)
def test_a_count_has_its_noun_and_verb(count: int, arguments: tuple[str, ...], text: str) -> None:
    assert format_count(count, *arguments) == text


def test_neighbouring_numbers_are_shown_as_a_range() -> None:
    assert format_ranges([7, 1, 0, 2, 9, 10]) == "0 to 2, 7, 9 to 10"
    assert format_ranges([]) == ""
