"""What a file is that nobody follows yet: the table of `shipper.tail.rules`, row by row."""

from typing import Any

import pytest

from broker.wire.positions import Cursor
from shipper.tail.identity import Sample, holds, identify
from shipper.tail.paths import Packing
from shipper.tail.rules import (
    FilePresence,
    Known,
    RotationGroup,
    Verdict,
    recognise,
    rule,
)
from shipper.tail.scan import FileEntry, FileKey

SECOND = 1_000_000_000
LIVE = "/log/app.log"
READ = b"x" * 100 + b"\n"
REST = READ + b"rest\n"
LONG = READ * 20


def cursor(read: bytes, file: str = "f") -> Cursor:
    return Cursor(file, LIVE, len(read), identify(7, read[:1024], read[-64:]), seen=50 * SECOND)


def sibling(
    content: bytes,
    read: bytes = READ,
    *,
    modified: int = 40,
    wanted: bool = False,
    packed: bool = False,
    copy_of: str | None = None,
    inode: int = 9,
    **seen: Any,
) -> Sample:
    """Return a file with this content, of which `read` is what was read of the file that it may be a copy of."""
    size, end, path = len(content), len(read), f"{LIVE}.1"
    packing = Packing.GZIP if packed else None
    entry = FileEntry(
        path, path, LIVE, FileKey(1, inode), size, modified * SECOND, wanted, packing, 1
    )
    tails = {"f": content[max(0, end - 64) : end], "e": b""}
    known = [cursor(read), cursor(b"", "e")]
    held = {c.file: False for c in known if holds(c, size, content[:1024], tails[c.file])}
    return Sample(entry, size, content[:1024], held, copy_of=copy_of, **seen)


def group(*known: Known, **other: Any) -> RotationGroup:
    return RotationGroup(known=known, **({"oldest": None, "newest": 50 * SECOND} | other))


def known(read: bytes, presence: FilePresence) -> RotationGroup:
    return group(Known(cursor(read), presence))


TRUNCATED = known(READ, FilePresence.TRUNCATED)
GONE = known(READ, FilePresence.GONE)
SHORT = known(b"1\n", FilePresence.GONE)


@pytest.mark.parametrize(
    ("candidate", "others", "expected"),
    [
        (sibling(b""), group(), "EMPTY"),
        (sibling(b"written before we last read\n"), group(), "OLD"),
        (sibling(b"written after\n"), group(newest=30 * SECOND), "BEGIN"),
        (sibling(b"at the first start\n"), group(newest=None), "OLD"),
        (sibling(b"late\n"), group(oldest=(30 * SECOND, -2, f"{LIVE}.2")), "BEGIN"),
        (sibling(b"shown by a glob\n", wanted=True), group(), "BEGIN"),
        (sibling(REST), TRUNCATED, "INHERIT"),
        (sibling(REST), GONE, "INHERIT"),
        (sibling(REST, packed=True), GONE, "INHERIT"),
        (sibling(READ[:50]), TRUNCATED, "OLD"),
        (sibling(READ, is_in_live=True), group(), "COPY"),
        (sibling(READ), known(READ, FilePresence.DELETED), "COPY"),
        (sibling(LONG, LONG, modified=60), known(LONG, FilePresence.FOLLOWED), "COPY"),
        (sibling(READ[:50], copy_of="f"), TRUNCATED, "COPY"),
        # alike by chance, unless it was seen next to its original or is compressed
        (sibling(b"1\n2\n", b"1\n", modified=60), SHORT, "BEGIN"),
        (sibling(b"1\n2\n", b"1\n", modified=60, packed=True), SHORT, "INHERIT"),
        (sibling(b"1\n2\n", b"1\n", modified=60, copy_of="f"), SHORT, "INHERIT"),
        (sibling(b"", packed=True, damage="bad"), GONE, "DAMAGED"),
        (sibling(b"", packed=True, damage="bad"), group(), "EMPTY"),
        (
            sibling(READ[:50], READ[:10], packed=True, damage="behind what was read"),
            known(READ[:10], FilePresence.GONE),
            "INHERIT",
        ),
        (
            sibling(LONG[:1100], LONG, packed=True, is_partial=True, modified=60),
            known(LONG[:10], FilePresence.GONE),
            "EMPTY",
        ),
    ],
)
def test_a_sibling_is_ruled_on(candidate: Sample, others: RotationGroup, expected: str) -> None:
    verdict, _ = rule(candidate, others)

    assert verdict is Verdict[expected]


def test_a_file_that_kept_its_inode_and_its_bytes_goes_on_at_the_furthest_cursor() -> None:
    behind = Cursor("e", LIVE, 0, identify(7, b"", b""), seen=0)

    assert recognise(sibling(REST, inode=7), [behind, cursor(READ)]) == [cursor(READ), behind]
