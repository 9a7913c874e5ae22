"""What a start takes back, for every way in which store and offset can stand to each other."""

import pytest

from broker.wire.offset import Offset
from receiver.storage.site import first_undone
from receiver.storage.store import Damaged, StoredBatch

MADE = "2026-11-20T00:00:00Z"
BATCH = StoredBatch(7, 3, 10, 20, "this", "before", "LOGS", MADE)


def offset(next_: int, commit: str, moved_in: int = 0, made: str = MADE) -> Offset:
    return Offset(next_, 5, made, "a:1", commit=commit, moved_in=moved_in)


@pytest.mark.parametrize(
    ("where", "since"),
    [
        pytest.param(offset(20, "this"), 8, id="committed"),
        pytest.param(offset(10, "before"), 7, id="stored and not committed"),
        pytest.param(offset(5, "this", 4), 8, id="committed, then set back"),
        pytest.param(offset(10, "this", 4), 8, id="committed, then set back to its first"),
        pytest.param(offset(5, "before", 4), 7, id="not committed, then set back"),
        pytest.param(offset(20, "before", 4), 7, id="not committed, then set to its end"),
        pytest.param(offset(20, "later", 4), 8, id="set back to where older files end"),
        pytest.param(offset(20, "not known", 4), 8, id="lost, then set to where the files end"),
        pytest.param(offset(5, "this", 4, "later"), 8, id="committed, then another stream"),
        pytest.param(offset(10, "before", 4, "later"), 8, id="stored, then another stream"),
        pytest.param(offset(5, "older", 4, "later"), 8, id="stream and KV restored"),
    ],
)
def test_the_batch_that_was_committed_last_tells(where: Offset, since: int) -> None:
    assert first_undone(BATCH, where, 0) == since


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(offset(20, "later"), id="committed by another up to the same sequence"),
        pytest.param(offset(30, "later"), id="behind"),
        pytest.param(offset(5, "older"), id="before"),
        pytest.param(offset(10, ""), id="nothing was ever committed"),
        pytest.param(offset(15, "this"), id="committed, then changed by other hands"),
        pytest.param(offset(20, "before"), id="not committed, then changed by other hands"),
        pytest.param(offset(15, "later", 4), id="moved elsewhere"),
    ],
)
def test_any_other_offset_stops_and_names_both_and_the_way_out(where: Offset) -> None:
    with pytest.raises(Damaged) as raised:
        first_undone(BATCH, where, 3)

    words = str(raised.value)
    assert "up to sequence 20" in words
    assert f"but the offset is {where.next}" in words
    assert "`logreceiver offsets adopt --partition 3`" in words
