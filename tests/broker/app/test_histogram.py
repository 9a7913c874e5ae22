"""How lengths of time are counted."""

import pytest

from broker.app.rate import Histogram


def test_a_histogram_counts_each_observation_in_every_bucket_that_holds_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(seconds)

    assert histogram.cumulative() == [2, 3, 4]
    assert histogram.sum == pytest.approx(7.65)
