"""Which closed segments are to go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.storage.retention import ClosedSegment, Limits, superfluous


def segment(live: str, number: int, moment: int = 0, size: int = 10) -> ClosedSegment:
    name = f"{live}.{number:06d}"
    return ClosedSegment(live, number, name, name, size, moment)


A = [segment("a", number, moment=number) for number in range(1, 5)]
B = [segment("b", number, moment=number + 2) for number in range(1, 3)]
NEW = 100


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        pytest.param(Limits(), "", id="no limit"),
        pytest.param(Limits(number=2), "a1 a2", id="number per host"),
        pytest.param(Limits(number=9), "", id="fewer than the number"),
        pytest.param(Limits(age=NEW - 3), "a1 a2", id="age of the last line"),
        pytest.param(Limits(size=40), "a1 a2", id="bytes in all, oldest over all hosts"),
        pytest.param(Limits(size=25), "a1 a2 a3 b1", id="equal age"),
        pytest.param(Limits(size=9), "a1 a2 a3 b1 a4 b2", id="less than one"),
        pytest.param(Limits(number=3, age=NEW - 3, size=30), "a1 a2 a3", id="all of them"),
    ],
)
def test_the_oldest_go_first(limits: Limits, gone: str) -> None:
    found = superfluous([*B, *reversed(A)], limits, NEW)

    assert [f"{s.live}{s.number}" for s in found] == gone.split()


segments = st.lists(
    st.builds(
        segment,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.integers(0, NEW),
        st.integers(0, 20),
    ),
    unique_by=lambda found: found.name,
)


@given(segments, st.builds(Limits, *[st.integers(0, 60)] * 3))
def test_every_limit_is_kept_and_no_file_loses_a_piece_out_of_its_middle(
    found: list[ClosedSegment], limits: Limits
) -> None:
    gone = superfluous(found, limits, NEW)

    left = [one for one in found if one not in gone]
    assert len(set(gone)) == len(gone)
    for live in "abc":
        numbers = [one.number for one in left if one.live == live]
        assert not limits.number or len(numbers) <= limits.number
        assert all(one.number < min(numbers, default=10) for one in gone if one.live == live)
    assert not limits.size or sum(one.size for one in left) <= limits.size
    if not limits:
        assert gone == []
