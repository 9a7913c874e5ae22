"""Which lines of a section are written, and which gaps are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_logship.wire.message import EXPECTED_SEQUENCE, Section, Span
from receiver.consume.judging import expected_sequence, judge
from receiver.storage.anomalies import AnomalyKind

OURS = {"Log-Agent": "a"}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 30)), max_size=20))
def test_every_byte_is_written_once_in_order_and_gaps_are_named(
    sections: list[tuple[int, int]],
) -> None:
    content, reached = bytes(range(256)), None
    written: list[int] = []
    missing: set[int] = set()
    for start, length in sections:
        section = Section("/var/log/a", Span("id", start, start + length), length, 0)
        found = judge(reached, section, "web01", 1)
        written += content[start : start + length][found.skip :]
        if found.anomaly and found.anomaly.kind is AnomalyKind.GAP:
            missing |= set(range(found.anomaly.start, found.anomaly.end))
        reached = max(start + length, reached or 0)

    assert written == sorted(set(written))
    if sections:
        assert set(written) | missing == set(range(sections[0][0], reached or 0))


@pytest.mark.parametrize(
    ("reached", "skip", "kind"),
    [
        pytest.param(40, 0, AnomalyKind.GAP, id="gap"),
        pytest.param(55, 0, AnomalyKind.DOUBT, id="unknown which lines were received"),
        pytest.param(90, 7, AnomalyKind.REPEAT, id="all received"),
    ],
)
def test_a_filtered_section_is_written_whole_or_not_at_all(
    reached: int, skip: int, kind: AnomalyKind
) -> None:
    section = Section("/var/log/a", Span("id", 50, 90), 7, 0, filtered=True)

    found = judge(reached, section, "web01", 7)

    assert found.skip == skip
    assert found.anomaly is not None
    assert found.anomaly.kind is kind


@pytest.mark.parametrize(
    ("headers", "predecessor"),
    [
        (None, None),
        ({EXPECTED_SEQUENCE: "5"}, None),  # of another client
        (OURS, None),
        (OURS | {EXPECTED_SEQUENCE: "0"}, 0),
        (OURS | {EXPECTED_SEQUENCE: "5"}, 5),
        (OURS | {EXPECTED_SEQUENCE: "-5"}, None),
        (OURS | {EXPECTED_SEQUENCE: "9" * 99}, None),
        (OURS | {EXPECTED_SEQUENCE: "5", "Nats-Stream-Source": "x 5"}, None),  # of another stream
    ],
)
def test_a_message_names_its_predecessor(
    headers: dict[str, str] | None, predecessor: int | None
) -> None:
    assert expected_sequence(headers) == predecessor
