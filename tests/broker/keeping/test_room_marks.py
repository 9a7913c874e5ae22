import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.keeping.room_marks import Amount, Bounds, Marks, look_again_after, shortage

MB, TB = 10**6, 10**12


@pytest.mark.parametrize(
    ("held", "bounds", "low", "high"),
    [
        pytest.param(Amount(899 * TB // 1000), Bounds(TB), 0, 0, id="below the high mark"),
        pytest.param(Amount(9 * TB // 10), Bounds(TB), TB // 10, TB // 100, id="at the high mark"),
        pytest.param(
            Amount(95 * TB // 100), Bounds(TB), 15 * TB // 100, 6 * TB // 100, id="over it"
        ),
        pytest.param(Amount(95 * TB), Bounds(None), 0, 0, id="without a limit"),
        pytest.param(Amount(499_999), Bounds(MB), 0, 0, id="small, with room for a round"),
        pytest.param(Amount(500_000), Bounds(MB), 55_556, 10_000, id="small, without"),
    ],
)
def test_what_must_go_of_the_bytes(held: Amount, bounds: Bounds, low: int, high: int) -> None:
    missing = shortage(held, bounds, Marks())

    assert (missing.to_low.size, missing.to_high.size) == (low, high)
    assert bool(missing) is bool(high)


def test_messages_run_short_as_well_as_bytes() -> None:
    missing = shortage(Amount(MB, 950_000), Bounds(TB, 1_000_000), Marks())

    assert missing.to_low == Amount(0, 150_000)
    assert missing.to_high == Amount(0, 60_000)


@given(st.integers(0, 10**7), st.integers(1, 10**7), st.integers(2, 99), st.data())
def test_to_make_room_as_told_ends_the_shortage(
    held: int, bound: int, high: int, data: st.DataObject
) -> None:
    marks = Marks(high, data.draw(st.integers(1, high - 1)))
    missing = shortage(Amount(held), Bounds(bound), marks)

    if missing and bound > 100 and held <= bound:
        assert not shortage(Amount(held - missing.to_high.size), Bounds(bound), marks)


def test_the_fuller_the_stream_the_more_often_it_is_looked_at() -> None:
    pauses = [look_again_after(Amount(part), Bounds(100), Marks()) for part in (0, 25, 50, 85, 100)]

    assert pauses == sorted(pauses, reverse=True)
    assert pauses[0] > pauses[-1]
    assert look_again_after(Amount(10**15), Bounds(), Marks()) == pauses[0]
