"""What a file is that nobody follows yet: the table of `shipper.tail.rules`, row by row."""

from dataclasses import replace
from typing import Any

import pytest

from broker.wire.positions import Cursor
from shipper.tail.identity import Sample, holds, identify
from shipper.tail.paths import Packing
from shipper.tail.rules import (
    Candidate,
    FilePresence,
    Known,
    RotationGroup,
    Verdict,
    recognise,
    rule,
)
from shipper.tail.scan import FileEntry, FileKey, Packed

SECOND = 1_000_000_000
LIVE = "/log/app.log"
READ = b"x" * 100 + b"\n"
LONG = READ * 20


def cursor(read: bytes, file: str = "f") -> Cursor:
    return Cursor(file, LIVE, len(read), identify(7, read[:1024], read[-64:]), seen=50 * SECOND)


def sibling(
    content: bytes,
    *,
    read: bytes = READ,
    path: str = f"{LIVE}.1",
    inode: int = 9,
    modified: int = 40,
    wanted: bool = False,
    copy_of: str | None = None,
    packed: bool = False,
    **seen: Any,
) -> Candidate:
    """Return a file with this content, of which `read` is what was read of the file that it may be a copy of."""
    size, end = len(content), len(read)
    packing = Packed(Packing.GZIP, 1) if packed else None
    key = FileKey(1, inode)
    entry = FileEntry(path, path, LIVE, key, size, modified * SECOND, wanted, packing)
    tail = content[max(0, end - 64) : end]
    known = [cursor(read), Cursor("e", LIVE, 0, identify(7, b"", b""), 0)]
    held = {
        c.file: False for c in known if holds(c, size, content[:1024], tail if c.offset else b"")
    }
    ends = seen.pop("ends", (size,))
    before = {n: content[max(0, n - 64) : n] for n in ends}
    return Candidate(entry, Sample(size, content[:1024], held, before, **seen), copy_of)


def live(content: bytes, *ends: int) -> Candidate:
    return sibling(content, path=LIVE, inode=7, wanted=True, ends=ends)


def group(*known: Known, **other: Any) -> RotationGroup:
    nothing: dict[str, Any] = {"live": None, "oldest": None, "newest": 50 * SECOND}
    return RotationGroup(known=known, **(nothing | other))


TRUNCATED = Known(cursor(READ), FilePresence.TRUNCATED)
GONE = Known(cursor(READ), FilePresence.GONE)
DELETED = Known(cursor(READ), FilePresence.DELETED)
FOLLOWED = Known(cursor(LONG), FilePresence.FOLLOWED)
SHORT = Known(cursor(b"1\n"), FilePresence.GONE)
OF_SHORT = {"read": b"1\n", "modified": 60}
REST = READ + b"rest\n"


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize(
    ("content", "known", "expected"),
    [
        pytest.param(b"", group(), Verdict.EMPTY, id="empty"),
        pytest.param(b"old\n", group(), Verdict.OLD, id="written before we last read"),
        pytest.param(b"new\n", group(newest=30 * SECOND), Verdict.BEGIN, id="written after"),
        pytest.param(b"new\n", group(newest=None), Verdict.OLD, id="first start"),
        pytest.param(
            b"late\n",
            group(oldest=(30 * SECOND, -2, "/log/app.log.2")),
            Verdict.BEGIN,
            id="younger than a file that is followed",
        ),
        pytest.param(REST, group(TRUNCATED), Verdict.INHERIT, id="copied and truncated"),
        pytest.param(REST, group(GONE), Verdict.INHERIT, id="original gone"),
        pytest.param(READ[:50], group(TRUNCATED), Verdict.OLD, id="begins otherwise"),
        pytest.param(
            READ, group(live=live(REST, len(READ))), Verdict.COPY, id="copied and not truncated yet"
        ),
        pytest.param(READ, group(DELETED), Verdict.COPY, id="copied and deleted while open"),
    ],
)
def test_a_sibling_is_ruled_on_whether_it_is_compressed_or_not(
    content: bytes, known: RotationGroup, expected: Verdict, packed: bool
) -> None:
    assert rule(sibling(content, packed=packed), known).verdict is expected


@pytest.mark.parametrize(
    ("candidate", "known", "expected"),
    [
        pytest.param(sibling(b"any\n", wanted=True), group(), Verdict.BEGIN, id="shown by a glob"),
        pytest.param(
            sibling(READ[:50], copy_of="f"),
            group(TRUNCATED),
            Verdict.COPY,
            id="copied before all that we read was written",
        ),
        pytest.param(
            sibling(LONG, read=LONG, modified=60),
            group(FOLLOWED),
            Verdict.COPY,
            id="a copy of a file that was renamed",
        ),
        pytest.param(
            sibling(b"1\n2\n", **OF_SHORT), group(SHORT), Verdict.BEGIN, id="alike by chance"
        ),
        pytest.param(
            sibling(b"1\n2\n", packed=True, **OF_SHORT),
            group(SHORT),
            Verdict.INHERIT,
            id="compressed, and short",
        ),
        pytest.param(
            sibling(b"1\n2\n", copy_of="f", **OF_SHORT),
            group(SHORT),
            Verdict.INHERIT,
            id="short, and seen beside its original",
        ),
        pytest.param(
            sibling(READ[:50], read=READ[:10], packed=True, damage="bad"),
            group(replace(GONE, cursor=cursor(READ[:10]))),
            Verdict.INHERIT,
            id="damaged behind what was read",
        ),
        pytest.param(
            sibling(b"", packed=True, damage="bad"), group(GONE), Verdict.DAMAGED, id="damaged"
        ),
        pytest.param(
            sibling(b"", packed=True, damage="bad"), group(), Verdict.EMPTY, id="damaged and old"
        ),
        pytest.param(
            sibling(LONG[:1100], read=LONG, packed=True, is_partial=True, modified=60),
            group(Known(cursor(LONG[:10]), FilePresence.GONE)),
            Verdict.EMPTY,
            id="compressed, in the making",
        ),
        pytest.param(
            sibling(READ, modified=60, ends=(0,)),
            group(live=live(READ, 0)),
            Verdict.COPY,
            id="was empty when its size was seen",
        ),
    ],
)
def test_a_sibling_is_ruled_on(
    candidate: Candidate, known: RotationGroup, expected: Verdict
) -> None:
    assert rule(candidate, known).verdict is expected


def test_a_file_that_kept_its_inode_and_its_bytes_goes_on_at_the_furthest_cursor() -> None:
    behind = Cursor("e", LIVE, 0, identify(7, b"", b""), seen=0)

    ruling = recognise(sibling(REST, inode=7), [behind, TRUNCATED.cursor])

    assert ruling is not None
    assert ruling.cursor == TRUNCATED.cursor
    assert ruling.others == (behind,)
