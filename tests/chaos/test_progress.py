"""What a person sees of a run while it goes."""

from typing import Any

from tests.chaos.progress import Progress


def lines(*events: dict[str, Any]) -> list[str | None]:
    progress = Progress()
    return [progress.line_of(event) for event in events]


def test_a_stroke_is_one_line_with_its_faults_and_how_long_lines_took() -> None:
    faults = [{"kind": "kill-jvm", "lasts": 0.0}, {"kind": "stop-shipper", "lasts": 4.5}]

    told = lines(
        {"event": "stroke", "number": 12, "faults": faults},
        {"event": "struck", "kind": "stop-shipper"},
        {"event": "not struck", "kind": "kill-jvm", "why": ""},
        {"event": "flows", "waited": 1.26},
    )

    assert told == [
        None,
        None,
        None,
        "  12  kill-jvm + stop-shipper 4.5 s (nothing to hit: kill-jvm): lines flow after 1.3 s",
    ]


def test_a_stroke_that_nobody_waits_for_is_told_when_the_next_one_comes() -> None:
    stroke = {"event": "stroke", "number": 1, "faults": [{"kind": "kill-jvm", "lasts": 0.0}]}

    told = lines(stroke, stroke)

    assert told == [None, "   1  kill-jvm: no lines waited for"]


def test_a_stroke_that_fails_says_so() -> None:
    stroke = {"event": "stroke", "number": 1, "faults": [{"kind": "kill-jvm", "lasts": 0.0}]}

    told = lines(stroke, {"event": "finding", "words": "lines flow again: not within 90 s"})

    assert told == [None, "   1  kill-jvm: lines flow again: not within 90 s"]
