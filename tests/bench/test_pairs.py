import pytest

from bench.result import ratio


def test_a_ratio_is_the_median_of_pairs_and_not_of_each_side() -> None:
    # the machine was twice as slow in the second run, for both
    found = ratio([100.0, 50.0, 90.0], [100.0, 55.0, 100.0])

    assert str(found) == "0.91 (0.90..1.00)"


@pytest.mark.parametrize(
    ("ones", "others"),
    [
        pytest.param([], [], id="no runs"),
        pytest.param([1.0, 2.0], [1.0], id="one without its other"),
        pytest.param([1.0], [0.0], id="nothing to compare with"),
    ],
)
def test_what_is_no_pair_has_no_ratio(ones: list[float], others: list[float]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        ratio(ones, others)
