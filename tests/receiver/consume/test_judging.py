"""What of a message's lines goes on: a receiver's book and a reader's memory make no difference."""

from pathlib import Path

import pytest

from broker.wire.message import MalformedMessage, decode_origin
from receiver.consume.judging import Book, Judge
from receiver.consume.rebuild import Rebuilder
from receiver.consume.spans import Kind
from receiver.storage.spans import Spans
from receiver.storage.store import Store
from tests.receiver.partition import lines_of, message, ours

STORED = 10**18
SENT = [
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 4, b"two\nthree\n"),
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 20, b"behind a gap\n"),
]


@pytest.fixture(params=["book", "memory"])
def judge(request: pytest.FixtureRequest) -> Judge:
    book: Book = Spans(Store.in_memory())
    return Judge(book) if request.param == "book" else Rebuilder(lambda _: True)._judge


def judged(judge: Judge, sent: tuple[str, bytes, dict[str, str]], sequence: int = 1) -> list[bytes]:
    found = judge.lines("web01", decode_origin(sent[2]), sent[1], sequence, STORED)
    return [lines.payload for lines in found]


def test_repeats_are_left_out_and_gaps_are_found_with_the_time_before(judge: Judge) -> None:
    assert [judged(judge, sent) for sent in SENT] == [
        [b"one\ntwo\n"],
        [b"three\n"],
        [],
        [b"behind a gap\n"],
    ]
    assert [finding.kind for finding in judge.findings] == [Kind.REPEAT, Kind.REPEAT, Kind.GAP]
    gap = judge.findings[-1]
    assert (gap.start, gap.end, gap.since, gap.read_at) == (14, 20, STORED, STORED)


@pytest.mark.parametrize("payload", [b"a stranger's", b"a stranger's\n"])
def test_a_strangers_lines_are_whole_ones(judge: Judge, payload: bytes) -> None:
    (lines,) = judge.lines("web01", None, payload, 1, STORED)

    assert (lines.payload, lines.section, lines.count) == (b"a stranger's\n", None, 1)


def test_an_empty_message_holds_no_line(judge: Judge) -> None:
    assert judge.lines("web01", None, b"", 1, STORED) == []


def test_sections_that_do_not_make_up_the_payload_are_refused_and_none_is_remembered(
    judge: Judge,
) -> None:
    subject, payload, headers = message(
        "web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"two\n")
    )

    for wrong in (payload[:-1], payload + b"x", b""):
        with pytest.raises(MalformedMessage, match="sections of 8 bytes"):
            judged(judge, (subject, wrong, headers))

    assert judged(judge, (subject, payload, headers)) == [b"one\n", b"two\n"]
    assert judge.findings == []


def test_each_section_is_judged_by_itself(judge: Judge) -> None:
    judged(judge, message("web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"1\n")), 1)

    sections = [
        *(lines_of("a", 0, b"one\n"), lines_of("b", 9, b"9\n"), lines_of("c", 7, b"new\n")),
        *(lines_of("a", 2, b"e\ntwo\n"), lines_of("b", 11, b"11\n")),
    ]
    _, payload, headers = message("web01", *sections)
    found = judge.lines("web01", decode_origin(headers), payload, 2, STORED)

    assert [(one.file_id, one.payload, one.follows) for one in found] == [
        ("b", b"9\n", False),
        ("c", b"new\n", True),
        ("a", b"two\n", True),
        ("b", b"11\n", True),
    ]
    assert [(f.kind, f.file_id, f.start, f.end) for f in judge.findings] == [
        (Kind.REPEAT, "a", 0, 4),
        (Kind.GAP, "b", 2, 9),
        (Kind.REPEAT, "a", 2, 4),
    ]


def test_the_payload_of_a_single_section_is_not_copied(judge: Judge) -> None:
    _, payload, headers = ours("web01", "a", 0, b"one\ntwo\n")

    (lines,) = judge.lines("web01", decode_origin(headers), payload, 1, STORED)

    assert lines.payload is payload


def test_a_message_whose_gap_is_in_any_of_its_sections_tells_no_loss_of_its_host(
    judge: Judge,
) -> None:
    first = message("web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"1\n"))
    second = message("web01", lines_of("a", 8, b"three\n"), lines_of("b", 0, b"1\n"))
    for sequence, sent, before in [(1, first, 0), (5, second, 4), (9, first, 8)]:
        judged(judge, sent, sequence)
        judge.follow("web01", before, sequence, STORED)

    kinds = [finding.kind for finding in judge.findings if finding.kind is not Kind.REPEAT]
    assert kinds == [Kind.GAP, Kind.LOSS]


def test_files_that_nobody_wants_are_neither_returned_nor_judged(tmp_path: Path) -> None:
    judge = Judge(Spans(Store.in_memory()), lambda path: path == "/var/log/b")
    judged(judge, message("web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"1\n")))

    lines = judged(judge, message("web01", lines_of("a", 9, b"x\n"), lines_of("b", 2, b"2\n")))

    assert (lines, judge.findings) == ([b"2\n"], [])


def test_repeats_are_one_finding_of_each_file_as_long_as_they_follow_on_each_other(
    judge: Judge,
) -> None:
    sections = [lines_of(file, n * 4, b"%3d\n" % n) for n in range(100) for file in "ab"]
    again = sections[:101] + sections[102:]
    for section in sections:
        judged(judge, message("web01", section))

    lines = [judged(judge, message("web01", *again[n : n + 2])) for n in range(0, 200, 2)]

    assert lines == [[]] * 100
    assert [(f.file_id, f.start, f.end, f.blocks) for f in judge.findings] == [
        ("a", 0, 400, 100),
        ("b", 0, 200, 50),
        ("b", 204, 400, 49),
    ]
    assert judge.found == 199


def test_what_is_found_of_a_host_beyond_the_most_is_one_of_each_kind(tmp_path: Path) -> None:
    judge = Judge(Spans(Store.in_memory()), most_of_host=3)
    for number in range(50):
        for sequence, start in ((2 * number, 0), (2 * number + 1, 9)):
            _, payload, headers = ours("evil", f"f{number}", start, b"x\n")
            (lines,) = judge.lines("evil", decode_origin(headers), payload, sequence, STORED)
            assert lines.follows is (start == 0)
    for _ in range(2):
        judged(judge, SENT[0])

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
