"""What `decide` makes of a file that was found, and what the catalogue makes of many.

Programs of `test_follower_model` play the rest.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor
from shipper.clock import Now
from shipper.sources.files.catalogue import Catalogue
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
from shipper.sources.files.paths import Compression, Selection, compression_of
from shipper.sources.files.scan import Scan
from tests.shipper.host import SECOND

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


# what the catalogue makes of many files

NOW = Now(30 * 86_400 * SECOND, 0)
NUMBERS = itertools.count(1000)


def steps_of(work: Callable[[], object]) -> int:
    """Return how many instructions of Python some work takes."""
    steps = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def found(
    path: str, group: str = "", *, key: FileKey | None = None, content: bytes = b""
) -> Sample:
    """Return the sample of a file that was written a month ago; of a sibling if it has a group."""
    key = key or FileKey(1, next(NUMBERS))
    entry = FileEntry(path, path, group or path, key, len(content), 0, not group)
    return Sample(
        replace(entry, compression=compression_of(path)), len(content), content[:1024], ()
    )


def make_catalogue(pattern: str, known: Iterable[Cursor] = (), **options: Any) -> Catalogue:
    ids = (f"new {number}" for number in itertools.count())
    return Catalogue(Selection.of([pattern], **options), known, lambda: next(ids))


def scan(catalogue: Catalogue, samples: Sequence[Sample]) -> int:
    """Have the catalogue settle the files it asks for; return how many cursors it asked for."""
    catalogue.note_scan(Scan([one.entry for one in samples], (), ()), NOW, ())
    asked = catalogue.memory.choose_samples(())
    by_key = {one.entry.key: one for one in samples}
    fitting = (
        replace(by_key[entry.key], fits=fits_of(by_key[entry.key], cursors))
        for entry, cursors in asked.items()
    )
    catalogue.settle(fitting, set(), NOW, lambda _: 0, at_end=())
    return sum(map(len, {id(cursors): cursors for cursors in asked.values()}.values()))


def fits_of(sample: Sample, cursors: Iterable[Cursor]) -> set[str]:
    return {c.file for c in cursors if c.identity == identity_of(sample, c.identity.inode)}


def identity_of(sample: Sample, inode: int) -> Identity:
    return identify(inode, sample.head, sample.head[-64:])


def cursor_of(sample: Sample, path: str = "") -> Cursor:
    """Return the cursor of a file that was read to its end, at its path by then."""
    key, path = sample.entry.key, path or sample.entry.path
    return Cursor(f"of {path}", path, sample.size, identity_of(sample, key.inode), 0)


def old_files(count: int) -> list[Sample]:
    return [found(f"/logs/{number}.log", content=b"1\n") for number in range(count)]


def old_siblings(count: int) -> list[Sample]:
    paths = [f"/logs/{number}.log" for number in range(count)]
    siblings = [found(f"{path}.1", path, content=b"1\n") for path in paths]
    return [*siblings, *(found(f"{path}.2.gz", path, content=b"2\n") for path in paths)]


def rotated_files(count: int) -> list[Sample]:
    names = [f"/logs/app.log.{number}" for number in range(1, count + 1)]
    return [found(name, "/logs/app.log", content=b"%b\n" % name.encode()) for name in names]


@pytest.mark.parametrize("make", [old_files, old_siblings, rotated_files])
def test_a_scan_of_twice_as_many_old_files_takes_twice_as_many_steps(
    make: Callable[[int], list[Sample]],
) -> None:
    def scan_old(count: int) -> None:
        catalogue = make_catalogue("/logs/*.log", ignore_older=86_400 * SECOND)
        scan(catalogue, make(count))
        assert len(catalogue.memory.left) >= count

    scan_old(2)  # or names are remembered the first time
    few, many = (steps_of(partial(scan_old, n)) for n in (100, 200))

    assert many < 2.5 * few


def test_finding_twice_as_many_rotated_files_of_a_group_takes_twice_as_many_steps() -> None:
    def scan_new(count: int) -> None:
        files = rotated_files(count)
        shown = [replace(one, entry=replace(one.entry, wanted=True)) for one in files]
        catalogue = make_catalogue("/logs/app.log*")
        scan(catalogue, shown)
        assert list(catalogue.files) == [one.entry.key for one in reversed(shown)]

    scan_new(400)  # or names are remembered the first time
    few, many = (steps_of(partial(scan_new, n)) for n in (200, 400))

    assert many < 2.5 * few


@pytest.mark.parametrize("count", [10, 100])
def test_a_start_and_a_rotation_ask_for_a_few_cursors_of_each_file(count: int) -> None:
    rotated = rotated_files(count)
    catalogue = make_catalogue("/logs/app.log", map(cursor_of, rotated))

    assert scan(catalogue, rotated) <= 3 * count
    assert len(catalogue.files) == count
    assert scan(catalogue, [*rotated, found("/logs/app.log", content=b"new\n")]) <= 3 * count
    assert len(catalogue.files) == count + 1


# clones: other devices have the same inodes

CONTENT = b"a line\n" * 20


def owners(catalogue: Catalogue) -> dict[str, str]:
    return {file.path: file.file for file in catalogue.files.values()}


def test_a_clone_that_comes_first_does_not_get_the_cursor_of_the_file() -> None:
    clone, file = (found(f"/c{n}/a.log", key=FileKey(n, 7), content=CONTENT) for n in range(2))
    catalogue = make_catalogue("/*/a.log", [cursor_of(file)])

    scan(catalogue, [clone, file])

    assert owners(catalogue) == {"/c0/a.log": "new 0", "/c1/a.log": "of /c1/a.log"}


@pytest.mark.parametrize("name", ["a.log", "a.log.1"])
def test_equal_clones_keep_their_cursors(name: str) -> None:
    lives = [f"/c{number}/a.log" for number in range(9)]
    clones = [
        found(f"/c{n}/{name}", lives[n] * (name != "a.log"), key=FileKey(n, 7), content=CONTENT)
        for n in range(9)
    ]
    new = [found(path, content=b"new\n") for path in lives] if name != "a.log" else []
    known = [cursor_of(clone, live) for clone, live in zip(clones, lives, strict=True)]
    catalogue = make_catalogue("/*/a.log", reversed(known))

    scan(catalogue, [*clones, *new])

    files = owners(catalogue)
    assert [files[clone.entry.path] for clone in clones] == [f"of {live}" for live in lives]


def test_a_file_that_was_moved_is_found_although_it_has_a_clone() -> None:
    moved, clone = (found(f"/c{n}/b.log", key=FileKey(n, 7), content=CONTENT) for n in range(2))
    new = found("/c0/a.log", content=b"new\n")
    known = [cursor_of(moved, "/c0/a.log"), cursor_of(clone)]
    catalogue = make_catalogue("/*/*.log", known)

    scan(catalogue, [moved, clone, new])

    assert owners(catalogue) == {
        "/c0/b.log": "of /c0/a.log",
        "/c1/b.log": "of /c1/b.log",
        "/c0/a.log": "new 0",
    }
