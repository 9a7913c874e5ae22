"""What a file seen now is to a cursor that is remembered."""

import pytest

from shipper.positions import Cursor
from shipper.tail.identity import Match, identify, judge

READ = b"one\ntwo\nthree\n"
CURSOR = Cursor("f", "/log/app.log", len(READ), identify(7, READ, READ[-4:]), seen=0)
UNREAD = Cursor("f", "/log/app.log", 0, identify(7, b"", b""), seen=0)


@pytest.mark.parametrize(
    ("cursor", "inode", "content", "expected"),
    [
        pytest.param(CURSOR, 7, READ, Match.SAME, id="unchanged"),
        pytest.param(CURSOR, 7, READ + b"four\n", Match.SAME, id="grown"),
        pytest.param(CURSOR, 7, b"", Match.TRUNCATED, id="emptied"),
        pytest.param(CURSOR, 7, b"one\n", Match.TRUNCATED, id="cut short"),
        pytest.param(CURSOR, 7, b"six\n" * 9, Match.REUSED, id="grown past the offset again"),
        pytest.param(CURSOR, 7, b"\0" * 99, Match.REUSED, id="writer kept its offset"),
        pytest.param(CURSOR, 8, READ + b"four\n", Match.COPY, id="copied"),
        pytest.param(CURSOR, 8, READ[:-1], Match.OTHER, id="copied in part"),
        pytest.param(CURSOR, 8, b"six\n" * 9, Match.OTHER, id="another file"),
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


def test_a_file_with_the_same_first_kilobyte_and_another_tail_was_truncated() -> None:
    head = b"#" * 1024
    cursor = Cursor("f", "/log/app.log", 1030, identify(7, head, b"first\n"), seen=0)

    assert judge(cursor, 7, 4000, head, b"other\n") is Match.TRUNCATED
