"""How a range of sequences is cut into pieces. No fixtures."""

import pytest

from receiver.consume.stream_state import StreamState
from receiver.source.datasource import cut
from receiver.source.options import SourceOptions

STATE = StreamState("now", first=50, until=100, messages=40, size=4000)
P0, P1 = "logs.p0.>", "logs.p1.>"


def test_bytes_become_sequences_by_the_average_size() -> None:
    assert STATE.window_of(1000) == 10
    assert STATE.window_of(1) == 1
    assert StreamState("now", 1, 1).window_of(1000) == 1


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("subjects", [None, (P0,), (P0, P1)], ids=str)
def test_pieces_are_enough_and_cover_every_sequence_once(
    subjects: tuple[str, ...] | None, pieces: int
) -> None:
    ranges = cut(SourceOptions(subjects=subjects, pieces=pieces), 60, 71, STATE)

    assert len(ranges) >= min(pieces, 11)
    for subject in subjects or (">",):
        own = [item for item in ranges if item.subject == subject]
        assert [n for item in own for n in range(item.first, item.until)] == [*range(60, 71)]
