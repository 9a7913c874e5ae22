"""What a broker says that it has dropped, held against what is gone."""

from dataclasses import replace

from broker.looking.message import Held, held
from broker.wire.message import Origin, Section, Span, encode_origin
from broker.wire.subjects import Subject
from tests.chaos.faults.stream import carried_out, destroyed_with, differences
from tests.chaos.losses import Destroyed
from tests.chaos.ranges import Range

GONE = Held("logs.p0.web01", 7, 0, {}, b"line\n", Subject(0, "web01"), None, "")
SAID = {"subject": "logs.p0.web01", "first": 7, "until": 9, "messages": 1}


def test_what_is_destroyed_with_a_message_is_told_section_by_section() -> None:
    sections = (
        Section("/a", Span("1-1", 5, 9), 4, 1),
        Section("/b", Span("1-2", 0, 2), 2, 1),
    )
    headers = encode_origin(Origin("1-00000001", 1, sections))
    message = held("logs.p0.web01", 7, 0, headers, b"abc\nd\n")

    assert destroyed_with([GONE, message]) == [
        Destroyed("web01", "/a", "1-1", Range(5, 9), b"abc\n"),
        Destroyed("web01", "/b", "1-2", Range(0, 2), b"d\n"),
    ]


def test_what_is_gone_and_said_is_no_difference() -> None:
    assert differences([GONE], [SAID]) == []


def test_what_is_gone_in_silence_is_one() -> None:
    (words,) = differences([GONE, replace(GONE, sequence=9)], [SAID])

    assert words == "1 messages are said to be dropped, 2 are gone"


def test_what_is_said_and_still_there_is_one() -> None:
    assert len(differences([GONE], [SAID | {"messages": 2}])) == 2


def _announced(first: int, until: int) -> dict[str, object]:
    return SAID | {"batch": "a", "state": "announced", "first": first, "until": until}


def test_what_was_announced_and_left_is_not_said_to_be_dropped() -> None:
    left = [{"subject": "logs.p0.web01", "first": 7, "until": 9}]
    end = {"batch": "a", "state": "interrupted", "left": left}

    assert carried_out([_announced(3, 5), _announced(7, 9), end]) == [_announced(3, 5)]


def test_of_what_was_announced_and_left_in_part_nobody_says_how_much_went() -> None:
    left = [{"subject": "logs.p0.web01", "first": 8, "until": 9}]
    end = {"batch": "a", "state": "interrupted", "left": left}

    said = carried_out([_announced(7, 9), end])

    assert differences([GONE], said) == []
    assert len(differences([replace(GONE, sequence=8)], said)) == 1
