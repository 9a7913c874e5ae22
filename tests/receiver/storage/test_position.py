"""What a start takes back, for every way in which store and offset can stand to each other."""

import pytest

from broker.wire.offset import Offset
from receiver.storage.site import first_undone
from receiver.storage.store import Damaged, StoredBatch

MADE = "2026-11-20T00:00:00Z"
BATCH = StoredBatch(7, 3, 10, 20, "LOGS", MADE)


def position(
    next_: int, moved: tuple[int, int] = (0, 0), epoch: int = 4, made: str = MADE
) -> Offset:
    return Offset(next_, epoch, made, "a:1", moved_in=moved[0], moved_from=moved[1])


@pytest.mark.parametrize(
    ("where", "since"),
    [
        pytest.param(position(20), 8, id="committed"),
        pytest.param(position(10), 7, id="stored and not committed"),
        pytest.param(position(5, (4, 20), epoch=5), 8, id="committed, then set back"),
        pytest.param(position(10, (4, 20), epoch=5), 8, id="committed, then set back to its first"),
        pytest.param(position(5, (4, 10), epoch=5), 7, id="not committed, then set back"),
        pytest.param(position(20, (4, 10), epoch=5), 7, id="not committed, then set to its end"),
        pytest.param(position(20, (4, 30), epoch=5), 8, id="set back to where older files end"),
        pytest.param(
            Offset(20, 5, MADE, "a:1", committed_in=4, moved_in=5, moved_from=30),
            *(8,),
            id="set to where older files end, which others have passed",
        ),
        pytest.param(
            position(5, (4, 20), epoch=5, made="later"), 8, id="committed, then another stream"
        ),
        pytest.param(
            position(10, (4, 10), epoch=5, made="later"), 8, id="stored, then another stream"
        ),
        pytest.param(position(5, (2, 5), epoch=3, made="later"), 8, id="stream and KV restored"),
    ],
)
def test_the_end_that_is_the_offset_tells(where: Offset, since: int) -> None:
    assert first_undone(BATCH, where, 0) == since


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(position(15), id="between"),
        pytest.param(position(30), id="behind"),
        pytest.param(position(5), id="before"),
        pytest.param(position(20, epoch=2), id="of an earlier epoch"),
        pytest.param(position(20, made="later"), id="of another stream"),
        pytest.param(position(5, (4, 30), epoch=5, made="later"), id="behind, then another stream"),
        pytest.param(position(15, (3, 20), epoch=5), id="moved before the batch"),
        pytest.param(Offset(20, 5, MADE, "a:1", committed_in=4), id="committed by another"),
    ],
)
def test_any_other_offset_stops_and_names_both_and_the_way_out(where: Offset) -> None:
    with pytest.raises(Damaged) as raised:
        first_undone(BATCH, where, 3)

    words = str(raised.value)
    assert "up to sequence 20" in words
    assert f"the offset of partition 3 is {where.next}" in words
    assert "`logreceiver offsets adopt --partition 3`" in words
