"""What `decide` makes of a file that was found; programs of `test_follower_model` play the rest."""

from dataclasses import replace

import pytest

from nats_logship.wire.positions import Cursor
from shipper.sources.files.decide import (
    Action,
    Decision,
    Event,
    FileState,
    Known,
    Matched,
    Presence,
    Unmatched,
    decide,
)
from shipper.sources.files.identity import HEAD_BYTES, FileEntry, FileKey, Sample, identify
from shipper.sources.files.paths import Compression

FOLLOWED, COPIED, LEFT_ALONE = FileState.FOLLOWED, FileState.COPY, FileState.LEFT
HEAD = b"1 one\n" * 200
READ = Cursor("id", "/app.log", 600, identify(7, HEAD[:600], HEAD[536:600]), 1)
SHORT = replace(READ, offset=30, identity=identify(7, HEAD[:30], HEAD[:30]))
ENTRY = FileEntry("/app.log.1", "/app.log.1", "/app.log", FileKey(1, 9), 1200, 5, True)
OTHER = Sample(ENTRY, 1200, b"2 two\n" * 170, {})
COPY = Sample(ENTRY, 1200, HEAD[:HEAD_BYTES], {"id": False})
BEGIN = Decision(FOLLOWED, (Action.BEGIN,))
LEFT = Decision(LEFT_ALONE)
TOO_OLD = Decision(LEFT_ALONE, (Action.REPORT_TOO_OLD,))
OLDER = Decision(LEFT_ALONE, (Action.REPORT_OLDER,))
DAMAGED = Decision(LEFT_ALONE, (Action.REPORT_DAMAGE,))
LONG = replace(READ, identity=identify(7, HEAD[:HEAD_BYTES], HEAD[536:600]))


def inherit(cursor: Cursor) -> Decision:
    return Decision(FOLLOWED, (Action.INHERIT,), cursor)


@pytest.mark.parametrize(
    ("sample", "known", "expected"),
    [
        (replace(OTHER, entry=replace(ENTRY, path="/app.log")), None, BEGIN),
        (OTHER, None, BEGIN),
        (replace(OTHER, size=0, head=b""), None, LEFT),
        (replace(OTHER, entry=replace(ENTRY, is_sought=True)), None, LEFT),
        (replace(OTHER, is_in_live=True), None, Decision(COPIED)),
        (COPY, Known(READ, Presence.TRUNCATED), inherit(READ)),
        (COPY, Known(READ, Presence.MISSING), inherit(READ)),
        (COPY, Known(SHORT, Presence.TRUNCATED), inherit(SHORT)),
        (COPY, Known(SHORT, Presence.MISSING), BEGIN),
        (COPY, Known(LONG, Presence.FOLLOWED), Decision(COPIED, (), LONG)),
        (COPY, Known(READ, Presence.FOLLOWED), BEGIN),
        (COPY, Known(READ, Presence.DELETED), Decision(COPIED, (), READ)),
        (replace(COPY, damage="cut", fits=()), Known(READ, Presence.MISSING), DAMAGED),
        (
            replace(OTHER, head=HEAD[:9], is_partial=True),
            Known(READ, Presence.FOLLOWED),
            LEFT,
        ),
    ],
)
def test_what_a_found_file_is(sample: Sample, known: Known | None, expected: Decision) -> None:
    group = [known] if known else []

    assert decide(FileState.FOUND, Unmatched(sample, is_new=True), group) == expected


def test_a_found_file_that_is_old_is_left_unless_it_is_a_copy() -> None:
    known = [Known(READ, Presence.MISSING)]

    assert decide(FileState.FOUND, Unmatched(OTHER, is_new=False), known) == OLDER
    assert decide(FileState.FOUND, Unmatched(OTHER, True, is_too_old=True), known) == TOO_OLD
    assert decide(FileState.FOUND, Unmatched(COPY, False, is_too_old=True), known) == inherit(READ)


def test_a_found_file_inherits_the_cursor_that_was_read_furthest() -> None:
    ahead, behind = replace(READ, offset=1200), replace(READ, file="other", seen=99)

    assert decide(FileState.FOUND, Matched([behind, ahead])) == inherit(ahead)


def test_a_copy_of_two_truncated_files_inherits_from_the_one_read_last() -> None:
    packed = replace(COPY, entry=replace(ENTRY, compression=Compression.GZIP))
    later = replace(READ, file="later", offset=30, seen=2)
    known = [Known(READ, Presence.TRUNCATED), Known(later, Presence.TRUNCATED)]
    both = {"id": False, "later": False}

    plain = Unmatched(replace(COPY, fits=both), is_new=True)
    assert decide(FileState.FOUND, plain, known) == inherit(later)
    compressed = Unmatched(replace(packed, fits=both), is_new=True)
    assert decide(FileState.FOUND, compressed, known) == inherit(READ)


@pytest.mark.parametrize("state", [COPIED, FileState.REMEMBERED, FileState.FOUND])
def test_an_observation_that_cannot_be_made_is_an_error(state: FileState) -> None:
    with pytest.raises(ValueError, match="not observed"):
        decide(state, Event.SEEN)
