"""What of a message's lines goes into files, and what is told of those that never came."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.message import Section, Span
from receiver.consume.judging import Judge
from receiver.consume.judging import judge as judged_alone
from receiver.storage.findings import FindingKind
from receiver.storage.store import Store
from receiver.storage.tables import Spans
from tests.receiver.partition import lines_of, message

STORED = 10**18


@pytest.fixture(params=["store", "memory"])
def judge(request: pytest.FixtureRequest) -> Judge:
    return Judge(Spans(Store.in_memory())) if request.param == "store" else Judge()


def test_a_message_whose_gap_is_in_any_of_its_sections_tells_no_loss_of_its_host(
    judge: Judge,
) -> None:
    first = message("web01", lines_of("a", 0, b"one\n"), lines_of("b", 0, b"1\n"))
    second = message("web01", lines_of("a", 8, b"three\n"), lines_of("b", 0, b"1\n"))
    for sequence, sent, before in [(1, first, 0), (5, second, 4), (9, first, 8)]:
        subject, payload, headers = sent
        judge.take(subject, headers, payload, sequence, STORED)
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
