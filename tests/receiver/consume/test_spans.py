"""What a section means in the light of what its file has brought, judged over any history of sections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.delivery import Delivery, parse
from broker.wire.message import Section, Span
from receiver.consume.spans import Kind, judge

CONTENT = bytes(range(256))


def section(start: int, end: int, size: int | None = None) -> Section:
    length = end - start
    filtered = size is not None
    return Section("/var/log/a", Span("id", start, end), size or length, 0, filtered=filtered)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=20))
def test_every_byte_is_written_once_in_order_and_gaps_are_named(
    sections: list[tuple[int, int]],
) -> None:
    reached: int | None = None
    written: list[int] = []
    missing: set[int] = set()
    for start, length in sections:
        payload = CONTENT[start : start + length]
        found = judge(reached, section(start, start + length), "web01", 1)
        written += payload[found.skip :]
        if found.finding and found.finding.kind is Kind.GAP:
            missing |= set(range(found.finding.start, found.finding.end))
        reached = max(start + length, reached or 0)

    assert written == sorted(set(written))
    if sections:
        assert set(written) | missing == set(range(sections[0][0], reached or 0))


@pytest.mark.parametrize(
    ("reached", "start", "end", "skip", "kind"),
    [
        pytest.param(None, 50, 60, 0, None, id="never seen: any start"),
        pytest.param(50, 50, 60, 0, None, id="follows"),
        pytest.param(40, 50, 60, 0, Kind.GAP, id="gap"),
        pytest.param(60, 50, 60, 10, Kind.REPEAT, id="all of it had come"),
        pytest.param(70, 50, 60, 10, Kind.REPEAT, id="long past"),
        pytest.param(55, 50, 60, 5, Kind.REPEAT, id="its beginning had come"),
    ],
)
def test_a_section_is_judged_by_its_span(
    reached: int | None, start: int, end: int, skip: int, kind: Kind | None
) -> None:
    found = judge(reached, section(start, end), "web01", 7)

    assert found.skip == skip
    assert (found.finding.kind if found.finding else None) is kind


@pytest.mark.parametrize(
    ("reached", "skip", "kind"),
    [
        pytest.param(None, 0, None, id="never seen"),
        pytest.param(50, 0, None, id="follows"),
        pytest.param(40, 0, Kind.GAP, id="gap"),
        pytest.param(55, 0, Kind.DOUBT, id="its beginning had come, nobody knows which lines"),
        pytest.param(90, 7, Kind.REPEAT, id="all of it had come"),
    ],
)
def test_a_section_with_lines_left_out_is_written_whole_or_not_at_all(
    reached: int | None, skip: int, kind: Kind | None
) -> None:
    found = judge(reached, section(50, 90, size=7), "web01", 7)

    assert found.skip == skip
    assert (found.finding.kind if found.finding else None) is kind


@pytest.mark.parametrize(
    ("reply", "delivery"),
    [
        ("$JS.ACK.LOGS.receiver-p0.1.22.3.444.5", Delivery(1, 22, 3, 444, 5)),
        ("$JS.ACK._.ACCHASH.LOGS.receiver-p0.1.22.3.444.5.token", Delivery(1, 22, 3, 444, 5)),
        ("$JS.ACK.hub.ACCHASH.LOGS.receiver-p0.2.22.3.444.5", Delivery(2, 22, 3, 444, 5)),
        ("", None),
        ("_INBOX.abc", None),
        ("$JS.ACK.LOGS.receiver-p0.1.22", None),
        ("$JS.ACK.LOGS.receiver-p0.1.22.x.444.5", None),
    ],
)
def test_a_reply_subject_of_either_form_says_where_a_message_stands(
    reply: str, delivery: Delivery | None
) -> None:
    assert parse(reply) == delivery


@given(st.text(max_size=60))
def test_any_other_subject_is_no_delivery(text: str) -> None:
    assert parse(text) is None
    assert isinstance(parse(f"$JS.ACK.{text}"), Delivery | None)
