"""Where a partition goes on from, for every state that offset and stream can be in."""

import pytest

from broker.wire.descent import Ancestor
from broker.wire.offset import Offset
from receiver.consume.claim import carried_over
from receiver.consume.stream_state import StreamMismatch, StreamState, start

CREATED = "2026-11-20T00:00:00Z"


def offset(sequence: int, created: str = CREATED) -> Offset:
    return Offset(sequence, 3, created, "old:1", 10, 1000, "before", "then")


def test_a_stream_that_went_back_is_refused() -> None:
    with pytest.raises(StreamMismatch, match="rewound.*offsets set --partition 4 --to earliest"):
        start(offset(12), StreamState(CREATED, 1, 10), 4)


RESTORED = StreamState("now", 1, 10, ancestors=(Ancestor("older", 5), Ancestor(CREATED, 8)))


@pytest.mark.parametrize(
    ("found", "next_", "by_hand"),
    [
        pytest.param(offset(6), 6, True, id="in the backup"),
        pytest.param(offset(6, "older"), 5, True, id="of what was backed up before"),
        pytest.param(offset(9), 8, True, id="beyond the backup"),
        pytest.param(offset(6, "now"), 6, False, id="claimed since"),
        pytest.param(offset(6, "other"), 6, False, id="of another stream"),
    ],
)
def test_an_offset_of_the_stream_that_was_backed_up_is_carried_over(
    found: Offset, next_: int, by_hand: bool
) -> None:
    carried = carried_over(found, RESTORED, "now")

    assert carried is not None
    assert (carried.next, carried.is_moved) == (next_, by_hand)
