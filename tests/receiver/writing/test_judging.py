"""What of a message's lines goes on: a receiver's book and a reader's memory make no difference."""

from pathlib import Path

import pytest

from broker.block import MalformedBlock, Origin, decode_origin
from receiver.writing.judging import Book, Judge
from receiver.writing.rebuild import Rebuilder
from receiver.writing.spanbook import SpanBook
from receiver.writing.spans import Kind
from tests.receiver.partition import ours

STORED = 10**18
BLOCKS = [
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 4, b"two\nthree\n"),
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 20, b"behind a gap\n"),
]


@pytest.fixture(params=["book", "memory"])
def judge(request: pytest.FixtureRequest, tmp_path: Path) -> Judge:
    book: Book = SpanBook(tmp_path / "p0.spans")
    return Judge(book) if request.param == "book" else Rebuilder()._judge


def judged(judge: Judge, message: tuple[str, bytes, dict[str, str]]) -> bytes:
    return judge.lines("web01", decode_origin(message[2]), message[1], 1, STORED)


def test_repeats_are_left_out_and_gaps_are_found_with_the_time_before(judge: Judge) -> None:
    assert [judged(judge, block) for block in BLOCKS] == [
        b"one\ntwo\n",
        b"three\n",
        b"",
        b"behind a gap\n",
    ]
    assert [finding.kind for finding in judge.findings] == [Kind.REPEAT, Kind.REPEAT, Kind.GAP]
    gap = judge.findings[-1]
    assert (gap.start, gap.end, gap.since, gap.read_at) == (14, 20, STORED, STORED)


@pytest.mark.parametrize("payload", [b"a stranger's", b"a stranger's\n"])
def test_a_strangers_lines_are_whole_ones(judge: Judge, payload: bytes) -> None:
    assert judge.lines("web01", None, payload, 1, STORED) == b"a stranger's\n"


def test_an_empty_message_holds_no_line(judge: Judge) -> None:
    assert judge.lines("web01", None, b"", 1, STORED) == b""


def test_a_span_that_cannot_be_true_is_refused_and_not_remembered(judge: Judge) -> None:
    _, payload, headers = ours("web01", "a", 0, b"one\n", end=400)
    origin = decode_origin(headers)
    assert isinstance(origin, Origin)

    with pytest.raises(MalformedBlock, match="does not go with"):
        judge.lines("web01", origin, payload, 1, STORED)

    assert judged(judge, BLOCKS[0]) == b"one\ntwo\n"
    assert judge.findings == []


def test_repeats_are_one_finding_of_each_file_as_long_as_they_follow_on_each_other(
    judge: Judge,
) -> None:
    blocks = [(file, ours("web01", file, n * 4, b"%3d\n" % n)) for n in range(100) for file in "ab"]
    again = [block for file, block in blocks if (file, block) != blocks[101]]
    for _, block in blocks:
        judged(judge, block)

    lines = [judged(judge, block) for block in again]

    assert set(lines) == {b""}
    assert [(f.file_id, f.start, f.end, f.blocks) for f in judge.findings] == [
        ("a", 0, 400, 100),
        ("b", 0, 200, 50),
        ("b", 204, 400, 49),
    ]
    assert judge.found == 199


def test_what_is_found_of_a_host_beyond_the_most_is_one_of_each_kind(tmp_path: Path) -> None:
    judge = Judge(SpanBook(tmp_path / "p0.spans"), most_of_host=3)
    for number in range(50):
        for sequence, start in ((2 * number, 0), (2 * number + 1, 9)):
            _, payload, headers = ours("evil", f"f{number}", start, b"x\n")
            judge.lines("evil", decode_origin(headers), payload, sequence, STORED)
            assert judge.follows(sequence) is (start == 0)
    for _ in range(2):
        judged(judge, BLOCKS[0])

    *named, rest, repeat = judge.findings

    assert [finding.file_id for finding in named] == ["f0", "f1", "f2"]
    assert (rest.kind, rest.host, rest.file, rest.is_sum) == (Kind.GAP, "evil", "", True)
    assert (rest.blocks, rest.end - rest.start, rest.sequence) == (47, 47 * 7, 7)
    assert (repeat.kind, repeat.host, repeat.is_sum) == (Kind.REPEAT, "web01", False)
    assert judge.found == 51


def test_a_path_without_end_is_cut_in_what_is_found(judge: Judge) -> None:
    path = "x" * 4000
    judged(judge, ours("web01", path, 0, b"1\n"))
    judged(judge, ours("web01", path, 9, b"2\n"))

    (gap,) = judge.findings

    assert gap.file.startswith("/var/log/xxx")
    assert len(gap.file) < 1100
