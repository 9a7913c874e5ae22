"""Where a partition goes on from, for every state that offset and stream can be in."""

import pytest

from broker.offset import Offset
from receiver.following.offsets import StreamMismatch, StreamState, advanced, claimed, start

CREATED = "2026-11-20T00:00:00Z"


def offset(sequence: int, created: str = CREATED) -> Offset:
    return Offset(sequence, 3, created, "old:1", 10, 1000, "before", "then")


@pytest.mark.parametrize(
    ("found", "first", "until", "begin"),
    [
        pytest.param(None, 0, 1, 1, id="nothing was ever there"),
        pytest.param(None, 1, 10, 1, id="a first receiver"),
        pytest.param(None, 7, 10, 7, id="a first receiver, late"),
        pytest.param(offset(5), 1, 10, 5, id="in the middle"),
        pytest.param(offset(10), 1, 10, 10, id="nothing new"),
        pytest.param(offset(5), 8, 10, 5, id="retention has passed it"),
        pytest.param(offset(1), 0, 1, 1, id="claimed, nothing came yet"),
    ],
)
def test_it_goes_on_where_the_offset_says(
    found: Offset | None, first: int, until: int, begin: int
) -> None:
    assert start(found, StreamState(CREATED, first, until), 0) == begin


@pytest.mark.parametrize(
    ("found", "until", "words"),
    [
        pytest.param(offset(5, "2026-01-01T00:00:00Z"), 10, "made anew", id="recreated"),
        pytest.param(offset(12), 10, "rewound", id="rewound"),
        pytest.param(offset(2), 1, "rewound", id="emptied by a restore"),
    ],
)
def test_a_stream_that_is_another_one_is_refused_in_one_line(
    found: Offset, until: int, words: str
) -> None:
    with pytest.raises(StreamMismatch, match=words) as raised:
        start(found, StreamState(CREATED, 1, until), 4)

    assert "delete key p4" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_claim_keeps_the_totals_and_counts_the_epoch() -> None:
    claim = claimed(offset(5), StreamState(CREATED, 1, 10), 0, "new:2", "now")

    assert claim == Offset(5, 4, CREATED, "new:2", 10, 1000, "before", "now")
    assert advanced(claim, 9, 2, 20, "last", "later") == Offset(
        9, 4, CREATED, "new:2", 12, 1020, "last", "later"
    )
