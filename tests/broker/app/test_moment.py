"""What people may write for a place in the stream."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from broker.app.units import Moment, read_moment

NOW = datetime(2026, 11, 21, 0, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        pytest.param("seq:12345", 12345, id="a sequence"),
        pytest.param("12345", 12345, id="a bare number is a sequence"),
        pytest.param("earliest", 0, id="whatever there is"),
        pytest.param("now", NOW, id="now"),
        pytest.param("2h", NOW - timedelta(hours=2), id="back from now"),
        pytest.param("1d12h", NOW - timedelta(hours=36), id="back by two units"),
        pytest.param("2026-11-20T10:00", datetime(2026, 11, 20, 9, tzinfo=UTC), id="of the zone"),
        pytest.param("2026-11-20T10:00Z", datetime(2026, 11, 20, 10, tzinfo=UTC), id="of UTC"),
        pytest.param(
            "2026-11-20 10:00-05:00", datetime(2026, 11, 20, 15, tzinfo=UTC), id="its own"
        ),
        pytest.param("2026-11-20", datetime(2026, 11, 19, 23, tzinfo=UTC), id="a date"),
        pytest.param("today", datetime(2026, 11, 20, 23, tzinfo=UTC), id="today, in the zone"),
        pytest.param("yesterday", datetime(2026, 11, 19, 23, tzinfo=UTC), id="yesterday"),
    ],
)
def test_a_place_is_read_as_people_write_it(text: str, meant: Moment) -> None:
    assert read_moment(text, NOW, BERLIN) == meant


@pytest.mark.parametrize(
    "text", ["", "soon", "seq:", "seq:x", "-1", "2026-13-01", "10:00", "9" * 30]
)
def test_anything_else_is_refused_with_what_would_do(text: str) -> None:
    with pytest.raises(ValueError, match=r"2026-11-20T10:00.* today.* 2h.* seq:12345"):
        read_moment(text, NOW)
