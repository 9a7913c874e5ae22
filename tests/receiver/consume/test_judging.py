"""What of a message's lines goes into files: a receiver's store and a reader's memory make no difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.message import MalformedMessage, Section, Span
from receiver.consume.judging import Judge
from receiver.consume.judging import judge as judged_alone
from receiver.storage.findings import FindingKind
from receiver.storage.store import Store
from receiver.storage.tables import Spans
from tests.receiver.partition import lines_of, message, ours

STORED = 10**18
SENT = [
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 4, b"two\nthree\n"),
    ours("web01", "a", 0, b"one\ntwo\n"),
    ours("web01", "a", 20, b"behind a gap\n"),
]


@pytest.fixture(params=["store", "memory"])
def judge(request: pytest.FixtureRequest) -> Judge:
    return Judge(Spans(Store.in_memory())) if request.param == "store" else Judge()


def taken(sent: tuple[str, bytes, dict[str, str]]) -> tuple[str, dict[str, str], bytes]:
    subject, payload, headers = sent
    return subject, headers, payload


def judged(judge: Judge, sent: tuple[str, bytes, dict[str, str]], sequence: int = 1) -> list[bytes]:
    found = judge.take(*taken(sent), sequence, STORED)
    return [lines.payload for lines in found]


def test_repeats_are_left_out_and_gaps_are_found_with_the_time_before(judge: Judge) -> None:
    assert [judged(judge, sent) for sent in SENT] == [
        [b"one\ntwo\n"],
        [b"three\n"],
        [],
        [b"behind a gap\n"],
    ]
    assert [finding.kind for finding in judge.findings] == [
        FindingKind.REPEAT,
        FindingKind.REPEAT,
        FindingKind.GAP,
    ]
    gap = judge.findings[-1]
    assert (gap.start, gap.end, gap.since, gap.read_at) == (14, 20, STORED, STORED)


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
    found = judge.take(*taken(message("web01", *sections)), 2, STORED)

    assert [(one.file_id, one.payload, one.follows) for one in found] == [
        ("b", b"9\n", False),
        ("c", b"new\n", True),
        ("a", b"two\n", True),
        ("b", b"11\n", True),
    ]
    assert [(f.kind, f.file_id, f.start, f.end) for f in judge.findings] == [
        (FindingKind.REPEAT, "a", 0, 4),
        (FindingKind.GAP, "b", 2, 9),
        (FindingKind.REPEAT, "a", 2, 4),
    ]


def test_a_message_whose_gap_is_in_any_of_its_sections_tells_no_loss_of_its_host(
    judge: Judge,
) -> None:
    first = message("web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"1\n"))
    second = message("web01", lines_of("a", 8, b"three\n"), lines_of("b", 0, b"1\n"))
    for sequence, sent, before in [(1, first, 0), (5, second, 4), (9, first, 8)]:
        judged(judge, sent, sequence)
        judge.follow("web01", before, sequence, STORED)

    kinds = [finding.kind for finding in judge.findings if finding.kind is not FindingKind.REPEAT]
    assert kinds == [FindingKind.GAP, FindingKind.LOSS]


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=20))
def test_every_byte_is_written_once_in_order_and_gaps_are_named(
    sections: list[tuple[int, int]],
) -> None:
    content, reached = bytes(range(256)), None
    written: list[int] = []
    missing: set[int] = set()
    for start, length in sections:
        section = Section("/var/log/a", Span("id", start, start + length), length, 0)
        found = judged_alone(reached, section, "web01", 1)
        written += content[start : start + length][found.skip :]
        if found.finding and found.finding.kind is FindingKind.GAP:
            missing |= set(range(found.finding.start, found.finding.end))
        reached = max(start + length, reached or 0)

    assert written == sorted(set(written))
    if sections:
        assert set(written) | missing == set(range(sections[0][0], reached or 0))


@pytest.mark.parametrize(
    ("reached", "skip", "kind"),
    [
        pytest.param(40, 0, FindingKind.GAP, id="gap"),
        pytest.param(55, 0, FindingKind.DOUBT, id="nobody knows which lines had come"),
        pytest.param(90, 7, FindingKind.REPEAT, id="all of it had come"),
    ],
)
def test_a_section_that_lines_were_left_out_of_is_written_whole_or_not_at_all(
    reached: int, skip: int, kind: FindingKind
) -> None:
    section = Section("/var/log/a", Span("id", 50, 90), 7, 0, filtered=True)

    found = judged_alone(reached, section, "web01", 7)

    assert found.skip == skip
    assert found.finding is not None
    assert found.finding.kind is kind
