"""What a rotated sibling is that nobody follows."""

from dataclasses import replace

import pytest

from shipper.positions import Cursor
from shipper.tail.identity import identify
from shipper.tail.rules import Candidate, Chain, Verdict, rule_known, rule_rotated
from shipper.tail.scan import FileEntry, FileKey

SECOND = 1_000_000_000
READ = b"x" * 100 + b"\n"
CURSOR = Cursor("f", "/log/app.log", len(READ), identify(7, READ, READ[-64:]), seen=50 * SECOND)


def sibling(
    content: bytes, *, inode: int = 9, modified: int = 40, copy_of: str = "", wanted: bool = False
) -> Candidate:
    path = "/log/app.log.1"
    key = FileKey(1, inode)
    entry = FileEntry(path, path, "/log/app.log", key, len(content), modified * SECOND, wanted)
    end = CURSOR.offset
    tails = {"f": content[max(0, end - 64) : end]}
    ends = {len(content): content[-64:]}
    return Candidate(entry, content[:1024], tails, ends, copy_of or None)


def chain(**known: object) -> Chain:
    nothing: dict[str, object] = {
        "live": None,
        "truncated": (),
        "gone": (),
        "unseen": (),
        "cursors": (CURSOR,),
        "oldest": None,
        "newest": 50 * SECOND,
    }
    return Chain(**(nothing | known))  # type: ignore[arg-type]


def live(content: bytes, size: int) -> Candidate:
    key = FileKey(1, 7)
    entry = FileEntry("/log/app.log", "/log/app.log", "/log/app.log", key, len(content), 0, True)
    return Candidate(entry, content[:1024], {}, {size: content[max(0, size - 64) : size]})


@pytest.mark.parametrize(
    ("candidate", "known", "expected"),
    [
        pytest.param(sibling(b""), chain(), Verdict.EMPTY, id="empty"),
        pytest.param(sibling(b"old\n"), chain(), Verdict.OLD, id="written before we last read"),
        pytest.param(sibling(b"new\n", modified=60), chain(), Verdict.BEGIN, id="written after"),
        pytest.param(
            sibling(b"new\n", modified=60), chain(newest=None), Verdict.OLD, id="first start"
        ),
        pytest.param(sibling(b"any\n", wanted=True), chain(), Verdict.BEGIN, id="shown by a glob"),
        pytest.param(
            sibling(b"late\n"),
            chain(oldest=(30 * SECOND, -2, "/log/app.log.2")),
            Verdict.BEGIN,
            id="younger than a file that we know",
        ),
        pytest.param(
            sibling(READ + b"rest\n"), chain(truncated=(CURSOR,)), Verdict.INHERIT, id="copied"
        ),
        pytest.param(
            sibling(READ + b"rest\n"), chain(gone=(CURSOR,)), Verdict.INHERIT, id="original gone"
        ),
        pytest.param(
            sibling(READ[:50], copy_of="f"),
            chain(truncated=(CURSOR,)),
            Verdict.COPY,
            id="copied before all that we read was written",
        ),
        pytest.param(
            sibling(READ, modified=60),
            chain(live=live(READ + b"more\n", len(READ))),
            Verdict.COPY,
            id="copied and not truncated yet",
        ),
        pytest.param(
            sibling(READ, modified=60), chain(unseen=(CURSOR,)), Verdict.COPY, id="copied, removed"
        ),
    ],
)
def test_a_sibling_is_ruled_on(candidate: Candidate, known: Chain, expected: Verdict) -> None:
    assert rule_rotated(candidate, known).verdict is expected


def test_a_file_that_kept_its_inode_and_its_bytes_goes_on_at_the_furthest_cursor() -> None:
    behind = Cursor("e", "/log/app.log", 0, identify(7, b"", b""), seen=0)

    ruling = rule_known(sibling(READ + b"rest\n", inode=7), [behind, CURSOR])

    assert ruling is not None
    assert ruling.cursor == CURSOR


def test_a_copy_that_was_empty_when_its_size_was_seen_may_be_one_of_the_live_file() -> None:
    copy = replace(sibling(READ, modified=60), ends={0: b""})

    ruling = rule_rotated(copy, chain(live=live(READ, 0)))

    assert ruling.verdict is Verdict.COPY
