"""What a refused round means."""

import pytest

from broker.wire.message import Identity, Origin, Section, Span
from shipper.publish.stored import AgentId, Ruling, Stored, Verdict, judge, review

OWN, OLDER, NEWER = AgentId(200, "aaaaaaaa"), AgentId(100, "bbbbbbbb"), AgentId(300, "cccccccc")
IDENTITY = Identity(1, 0, "", 0, "")


def section(end: int, file: str = "f") -> Section:
    return Section("/a", Span(file, 0, end), end, 1, IDENTITY)


def origin(agent: AgentId, *sections: Section | int) -> Origin:
    made = (section(one) if isinstance(one, int) else one for one in sections)
    return Origin(str(agent), 1, tuple(made))


def claim(agent: AgentId) -> Origin:
    return Origin(str(agent), 1)


SENT = origin(OWN, section(20, "g"), 50)


@pytest.mark.parametrize(
    ("seen", "complete", "expected"),
    [
        pytest.param([], False, Verdict(Ruling.AGAIN), id="all expired"),
        pytest.param([Stored(9, SENT)], False, Verdict(Ruling.GO_ON, 9), id="it was stored"),
        pytest.param(
            [Stored(9, origin(OWN, 40))], False, Verdict(Ruling.AGAIN, 9), id="an earlier round"
        ),
        pytest.param(
            [Stored(9, origin(OWN, section(20, "g")))],
            False,
            Verdict(Ruling.AGAIN, 9),
            id="only its first part",
        ),
        pytest.param(
            [Stored(9, origin(OWN, section(70, "h")))],
            False,
            Verdict(Ruling.AGAIN, 9),
            id="lines of another file",
        ),
        pytest.param(
            [Stored(9, origin(OWN, 50, section(70, "h")))],
            False,
            Verdict(Ruling.GO_ON, 9),
            id="it was stored, the last of its sections amid others",
        ),
        pytest.param([Stored(9, claim(OWN))], False, Verdict(Ruling.AGAIN, 9), id="own claim"),
        pytest.param(
            [Stored(9, claim(NEWER))], False, Verdict(Ruling.FENCED, 9, NEWER), id="newer claim"
        ),
        pytest.param(
            [Stored(9, origin(NEWER, 50))],
            False,
            Verdict(Ruling.FENCED, 9, NEWER),
            id="newer lines",
        ),
        pytest.param(
            [Stored(9, claim(OLDER))], False, Verdict(Ruling.RECLAIM, 9, OLDER), id="late claim"
        ),
        pytest.param([Stored(9, None)], False, Verdict(Ruling.LOOK_BACK, 9), id="plain client"),
        pytest.param(
            [Stored(8, SENT), Stored(9, None)],
            True,
            Verdict(Ruling.GO_ON, 9),
            id="stored, then a plain client",
        ),
        pytest.param(
            [Stored(8, None), Stored(9, None)],
            True,
            Verdict(Ruling.AGAIN, 9),
            id="plain clients only",
        ),
        pytest.param(
            [Stored(7, SENT), Stored(8, claim(NEWER)), Stored(9, None)],
            True,
            Verdict(Ruling.FENCED, 9, NEWER),
            id="a newer agent hidden by a plain client",
        ),
    ],
)
def test_a_refused_round_is_judged(seen: list[Stored], complete: bool, expected: Verdict) -> None:
    assert judge(seen, SENT, complete) == expected


def test_the_same_span_of_another_agent_is_not_the_own_round() -> None:
    verdict = judge([Stored(9, origin(OLDER, 50))], SENT, complete=False)

    assert verdict.ruling is Ruling.RECLAIM


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param([claim(OWN)], Verdict(Ruling.AGAIN, 1), id="nothing"),
        pytest.param([claim(OLDER), claim(OWN)], Verdict(Ruling.AGAIN, 2), id="only a claim"),
        pytest.param(
            [SENT, claim(OLDER), claim(OWN)], Verdict(Ruling.GO_ON, 3), id="stored before it"
        ),
        pytest.param(
            [claim(OLDER), origin(OLDER, 50), claim(OWN)],
            Verdict(Ruling.LOST, 3, OLDER),
            id="lines",
        ),
        pytest.param(
            [SENT, origin(OLDER, 50), None, claim(OWN)],
            Verdict(Ruling.LOST, 4, OLDER),
            id="stored before lines",
        ),
        pytest.param(
            [claim(OLDER), claim(NEWER), claim(OWN)],
            Verdict(Ruling.FENCED, 3, NEWER),
            id="a newer one",
        ),
    ],
)
def test_a_round_is_reviewed_once_its_subject_is_claimed_again(
    seen: list[Origin | None], expected: Verdict
) -> None:
    stored = [Stored(number, found) for number, found in enumerate(seen, start=1)]

    assert review(stored, SENT) == expected
