"""Times in the lines of received files are compared in their zone, also at its changes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from nats_logship.app.timestamps import to_datetime, to_nanoseconds
from receiver.search.times import LineTimes, StorageTimes

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


@pytest.mark.parametrize("zone", [None, BERLIN])
def test_lines_were_stored_when_their_times_say_in_whatever_zone_these_are(
    zone: ZoneInfo | None,
) -> None:
    clocks = "14:00:07", "", "14:10:00", "13:00:00", "15:00:00"
    lines = [f"2026-10-20 {clock} x" if clock else "a rest" for clock in ("", *clocks)]
    begins, ends = (datetime(2026, 10, 20, *at, tzinfo=UTC) for at in ((12, 5), (13, 0, 4)))
    times = StorageTimes(LineTimes(to_nanoseconds(ends), zone))
    found = times.read("\n".join(lines).encode()).to_pylist()

    stored = times.estimate(found, to_nanoseconds(begins))
    minutes = [f"{to_datetime(one):%H:%M:%S}" for one in stored]
    assert minutes == ["12:05:00"] * 3 + ["12:10:00"] * 2 + ["13:00:00"]


def test_a_time_in_a_block_without_a_wanted_line_is_that_of_lines_after_blocks_without_times() -> (
    None
):
    ends = datetime(2026, 10, 20, 12, tzinfo=UTC)
    times = StorageTimes(LineTimes(to_nanoseconds(ends), UTC))
    texts = b"2026-10-20 03:00:00 a\n", b"2026-10-20 11:59:59 x\n", b"a dump\n", b"  a\n"
    wanted = [bytearray(one) for one in texts]

    found = [
        time
        for block in wanted
        for time in times.read_some(block, 0, len(block), [(0, len(block))] * (b"a\n" in block))
    ]
    assert [f"{to_datetime(one * 1000):%H:%M:%S}" for one in found if one] == [
        *("03:00:00", "11:59:59")
    ]
