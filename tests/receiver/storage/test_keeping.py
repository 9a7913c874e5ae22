"""Which closed segments are to go."""

from hypothesis import given
from hypothesis import strategies as st

from receiver.storage.retention import Limits, superfluous
from receiver.storage.store import SegmentRow


def segment(live: str, number: int, moment: int = 0, size: int = 10) -> SegmentRow:
    name = f"{live}.{number:06d}"
    return SegmentRow(name, live, number, "", 0, size, moment, "", "", 0)


NEW = 100


segments = st.lists(
    st.builds(
        segment,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.integers(0, NEW),
        st.integers(0, 20),
    ),
    unique_by=lambda found: found.path,
)


@given(segments, st.builds(Limits, *[st.integers(0, 60)] * 3))
def test_every_limit_is_kept_and_no_file_loses_a_piece_out_of_its_middle(
    found: list[SegmentRow], limits: Limits
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
