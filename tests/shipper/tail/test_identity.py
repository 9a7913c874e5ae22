"""What a file is to a cursor that is remembered, and what a file is recognised by while it is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Fingerprint, Match, identify, judge

READ = b"one\ntwo\nthree\n"
CURSOR = Cursor("f", "/log/app.log", len(READ), identify(7, READ, READ[-4:]), seen=0)
UNREAD = Cursor("f", "/log/app.log", 0, identify(7, b"", b""), seen=0)
LONG = Cursor("f", "/log/app.log", 1030, identify(7, b"#" * 1024, b"first\n"), seen=0)


@pytest.mark.parametrize(
    ("cursor", "inode", "content", "expected"),
    [
        pytest.param(CURSOR, 7, READ, Match.SAME, id="unchanged"),
        pytest.param(CURSOR, 7, READ + b"four\n", Match.SAME, id="grown"),
        pytest.param(CURSOR, 7, b"", Match.OTHER, id="emptied"),
        pytest.param(CURSOR, 7, b"one\n", Match.OTHER, id="cut short"),
        pytest.param(CURSOR, 7, b"six\n" * 9, Match.OTHER, id="grown past the offset again"),
        pytest.param(CURSOR, 7, b"\0" * 99, Match.OTHER, id="writer kept its offset"),
        pytest.param(CURSOR, 8, READ + b"four\n", Match.COPY, id="copied"),
        pytest.param(CURSOR, 8, READ[:-1], Match.OTHER, id="copied in part"),
        pytest.param(CURSOR, 8, b"six\n" * 9, Match.OTHER, id="another file"),
        pytest.param(LONG, 7, b"#" * 1024 + b"other\n", Match.OTHER, id="first kilobyte alone"),
        pytest.param(UNREAD, 7, b"anything", Match.SAME, id="nothing read yet"),
        pytest.param(UNREAD, 8, b"anything", Match.OTHER, id="nothing to compare"),
    ],
)
def test_a_file_is_judged_by_inode_head_and_tail(
    cursor: Cursor, inode: int, content: bytes, expected: Match
) -> None:
    length = cursor.identity.tail_length
    tail = content[max(0, cursor.offset - length) : cursor.offset]

    assert judge(cursor, inode, len(content), content[:1024], tail) is expected


@given(
    runs=st.lists(st.binary(min_size=1, max_size=2 * HEAD_BYTES), max_size=6),
    seen=st.integers(0, HEAD_BYTES),
)
def test_however_it_is_seen_and_read_it_is_recognised_by_the_same_bytes(
    runs: list[bytes], seen: int
) -> None:
    content = b"".join(runs)
    file = Fingerprint(UNREAD, content[: seen // 2], b"")
    file.saw(content[:HEAD_BYTES][:seen])
    file.saw(b"")  # cut short since: what was seen stays known
    position = 0

    for run in runs:
        assert file.identity(7) == identify(
            7, content[: min(position, HEAD_BYTES)], content[:position][-TAIL_BYTES:]
        )
        file.took(run)
        position += len(run)

    assert file.beginning == content[: max(seen, min(position, HEAD_BYTES))][:HEAD_BYTES]


def test_a_position_taken_over_without_its_bytes_keeps_its_identity_until_a_read() -> None:
    identity = identify(3, b"one\n", b"one\n")
    known = Fingerprint(Cursor("f1", "/log/a", 4, identity, 0), b"one\n", b"")

    assert known.identity(7).tail_hash == identity.tail_hash
    assert known.identity(7).inode == 7
    known.took(b"two\n")
    assert known.identity(7).tail_hash != identity.tail_hash
