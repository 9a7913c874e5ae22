"""Times in the lines of received files are compared in their zone, also at its changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from nats_logship.app.timestamps import to_nanoseconds
from receiver.search.times import LineTimes

BERLIN = ZoneInfo("Europe/Berlin")
CHANGE = datetime(2026, 10, 25, 1, 0, tzinfo=UTC)  # three o'clock becomes two o'clock


@pytest.mark.parametrize("minutes", range(-130, 131, 20))
def test_no_line_is_missing_when_a_clock_is_set_back_and_far_ones_are_left_out(
    minutes: int,
) -> None:
    bound = CHANGE + timedelta(minutes=minutes)
    stored = [CHANGE + timedelta(minutes=10 * number) for number in range(-60, 61)]
    local = [f"{one.astimezone(BERLIN):%Y-%m-%d %H:%M:%S} a".encode() for one in stored]
    times = LineTimes(to_nanoseconds(stored[-1]), BERLIN)

    at = to_nanoseconds(bound)
    for since, until in ((at, None), (None, at)):
        is_wanted = times.is_between(since, until)(pa.array(local, pa.binary())).to_pylist()
        for one, found in zip(stored, is_wanted, strict=True):
            is_in = one >= bound if since else one < bound
            is_near = abs(one - bound) <= timedelta(hours=1)
            assert found == is_in or (found and is_near)
