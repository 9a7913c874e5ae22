from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.units import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1d", 86400),
        ("2w", 1209600),
        ("250ms", 0.25),
        ("7", 7),
        (" 1D ", 86400),
    ],
)
def test_a_length_of_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "1y", "d", "-1s", "1 d", "1d x", "\u0661s", "nan", "inf", "9" * 20 + "d"]
)
def test_anything_else_is_an_error_of_one_kind(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the kind that pydantic turns into one line
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_a_whole_number_of_seconds_comes_back_from_its_text(seconds: int) -> None:
    length = timedelta(seconds=seconds)

    assert parse_duration(format_duration(length)) == length
