"""Where a partition goes on from, for every state that offset and stream can be in."""

from dataclasses import replace
from typing import Any

import pytest

from broker.wire.descent import Ancestor
from broker.wire.offset import Beginning, Offset
from receiver.following.offsets import (
    FilesMismatch,
    StreamMismatch,
    StreamRestored,
    StreamState,
    carried_over,
    claimed,
    elsewhere,
    moved,
    start,
)
from receiver.writing.evidence import Bond, Evidence
from receiver.writing.journal import Batch, Verdict, decide

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

    assert "offsets reset --partition 4" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_claim_keeps_the_totals_and_counts_the_epoch() -> None:
    claim = claimed(offset(5), StreamState(CREATED, 1, 10), 0, "new:2", "now")

    begun = (Beginning(4, 5),)
    assert claim == Offset(5, 4, CREATED, "new:2", 10, 1000, "before", "now", begun)
    assert claim.advanced(9, 2, 20, "last", "later") == Offset(
        9, 4, CREATED, "new:2", 12, 1020, "last", "later", begun
    )


def test_of_claims_with_nothing_written_between_one_is_remembered() -> None:
    stream, found = StreamState(CREATED, 1, 10), offset(5)
    for number in range(40):
        found = claimed(found, stream, 0, f"new:{number}", "now")
    found = claimed(found.advanced(7, 1, 1, "", ""), stream, 0, "last", "now")

    assert found.lineage == (Beginning(43, 5), Beginning(44, 7))


def test_an_offset_moved_by_hand_is_an_epoch_of_its_own_and_the_files_go_by_the_old_place() -> None:
    stream = StreamState(CREATED, 1, 10)
    mine = claimed(offset(5), stream, 0, "me", "")

    hand = moved(moved(mine, stream, 2, "root", ""), stream, 3, "root", "")
    next_owner = claimed(hand, stream, 0, "me", "", Evidence("o", "s", last=Batch(4, 5, 8, ())))

    assert (hand.next, hand.epoch, hand.is_moved, next_owner.is_moved) == (3, 6, True, False)
    assert next_owner.lineage == (
        *(Beginning(4, 5), Beginning(5, 5, True), Beginning(6, 2, True)),
        Beginning(7, 3),
    )
    assert decide(Batch(4, 5, 8, ()), 3, 7, next_owner.lineage) is Verdict.UNDO


@pytest.mark.parametrize(
    "known", [None, offset(1, "older")], ids=["bucket lost", "stream made anew"]
)
def test_what_files_have_of_another_stream_stays_though_the_new_one_begins_at_the_same_sequence(
    known: Offset | None,
) -> None:
    first_of_all = Evidence("out", "state", last=Batch(1, 1, 3, ()), bond=Bond.WHOLE)

    by_hand = moved(known, StreamState(CREATED, 1, 2), 1, "op@pc by hand", "now")
    claim = claimed(by_hand, StreamState(CREATED, 1, 2), 0, "new:2", "later", first_of_all)

    assert claim.next == 1
    assert decide(first_of_all.last, claim.next, claim.epoch, claim.lineage) is Verdict.CLEAN
    torn = replace(first_of_all.last or Batch(1, 1, None, ()), until=None)
    assert decide(torn, claim.next, claim.epoch, claim.lineage) is Verdict.UNDO


def test_what_is_moved_by_hand_comes_behind_any_epoch_that_the_files_know() -> None:
    """The bucket was lost, and with it how many owners there were."""
    stream, files = StreamState(CREATED, 1, 10), Batch(30, 5, 8, ())

    claim = claimed(
        moved(None, stream, 8, "root", ""), stream, 0, "me", "", Evidence("", "", last=files)
    )

    assert (claim.next, claim.epoch) == (8, 32)
    assert decide(files, 8, claim.epoch, claim.lineage) is Verdict.CLEAN
    turned = Batch(30, 8, 8, ())
    assert decide(turned, 8, claim.epoch, claim.lineage) is Verdict.CLEAN, "nothing undoes a turn"


@pytest.mark.parametrize(
    ("found", "evidence", "words"),
    [
        pytest.param(None, {"last": Batch(3, 1, 5, ())}, "is gone.*--to 5`", id="no entry"),
        pytest.param(None, {"last": Batch(3, 4, None, ())}, "--to 4`", id="no entry, unfinished"),
        pytest.param(offset(5), {"last": Batch(3, 1, 3, ())}, "older.*--to 3`", id="files behind"),
        pytest.param(
            offset(5), {"last": Batch(3, 6, 8, ())}, "restored.*--to 8`", id="files ahead"
        ),
        pytest.param(
            offset(5), {"last": Batch(9, 5, 8, ())}, "restored.*--to 8`", id="later epoch"
        ),
        pytest.param(offset(5), {"bond": Bond.OTHER_OUTPUT}, "mounted", id="another output"),
        pytest.param(
            offset(5), {"bond": Bond.OTHER_STATE}, "--state-dir", id="another state folder"
        ),
        pytest.param(None, {"bond": Bond.OTHER_STATE}, "offsets set", id="another one, no entry"),
        pytest.param(offset(5), {"bond": Bond.NO_JOURNAL}, "bring it back", id="journal removed"),
        pytest.param(offset(5), {"damage": "x is damaged"}, "x is damaged; bring", id="damaged"),
    ],
)
def test_files_that_do_not_go_with_the_offset_are_refused_in_one_line_that_says_what_to_do(
    found: Offset | None, evidence: dict[str, Any], words: str
) -> None:
    with pytest.raises(FilesMismatch, match=f"partition 4: .*{words}") as raised:
        claimed(
            found, StreamState(CREATED, 1, 10), 4, "me", "", Evidence("out", "state", **evidence)
        )

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("bond", [Bond.OTHER_OUTPUT, Bond.OTHER_STATE, Bond.NO_JOURNAL])
def test_an_offset_moved_by_hand_speaks_for_folders_that_are_in_doubt(bond: Bond) -> None:
    stream = StreamState(CREATED, 1, 10)

    claim = claimed(
        moved(offset(5), stream, 5, "", ""), stream, 0, "me", "", Evidence("", "", bond)
    )

    assert claim.next == 5


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        pytest.param(Evidence("", ""), "begin here at sequence 9", id="without its files"),
        pytest.param(Evidence("", "", Bond.WHOLE), "", id="said before"),
        pytest.param(
            Evidence("", "", last=Batch(1, 2, 5, ())), "leave out sequences 5 to 8", id="back"
        ),
        pytest.param(Evidence("", "", last=Batch(3, 5, 9, ())), "", id="with its files"),
    ],
)
def test_lines_that_others_received_are_said_to_be_elsewhere(
    evidence: Evidence, words: str
) -> None:
    stream = StreamState(CREATED, 1, 10)
    others = claimed(replace(offset(5), epoch=1), stream, 0, "b", "")
    found = replace(others.advanced(9, 1, 1, "", ""), epoch=3)

    said = elsewhere(claimed(found, stream, 0, "a", "", evidence), evidence)

    assert words in said
    assert bool(words) == bool(said)


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


def test_files_that_are_ahead_of_a_restored_offset_are_accepted() -> None:
    ahead = Evidence("out", "state", last=Batch(7, 20, 30, ()), bond=Bond.WHOLE)
    before = carried_over(offset(6), RESTORED, "now")

    claim = claimed(before, RESTORED, 0, "new:2", "now", ahead)

    assert (claim.next, claim.stream_created) == (6, "now")
    assert claim.epoch > 7
    assert decide(ahead.last, claim.next, claim.epoch, claim.lineage) is Verdict.CLEAN


def test_who_ran_before_the_restore_is_told_what_happened() -> None:
    with pytest.raises(StreamRestored, match="restored from a backup"):
        start(offset(6), RESTORED, 0)
    with pytest.raises(StreamMismatch, match="made anew"):
        start(offset(6, "other"), RESTORED, 0)
