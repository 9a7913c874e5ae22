"""How fast something moves, over about the last ten seconds."""

import pytest

from receiver.rate import Rate


def test_a_steady_file_has_its_rate_from_the_beginning_and_loses_it_when_it_stands_still() -> None:
    rate = Rate(100.0, 100.0)
    for second in range(30):
        rate.add(1000, 10, 101.0 + second)

    steady, lines = rate.per_second(130.0)
    later, _ = rate.per_second(160.0)

    assert steady == pytest.approx(1000, rel=0.1)
    assert lines == pytest.approx(10, rel=0.1)
    assert later < 100


def test_a_clock_that_jumps_back_breaks_no_rate() -> None:
    rate = Rate(1e9, 1e9)

    rate.add(100, 1, 1e9)
    rate.add(100, 1, 5.0)

    assert rate.per_second(5.0)[0] > 0
    assert rate.per_second(0.0)[0] > 0
