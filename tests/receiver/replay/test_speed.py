"""How fast a replay goes."""

import pytest

from receiver.consume.judging import Piece
from receiver.replay.settings import read_speed
from receiver.replay.stream import Pacing

SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "factor"),
    [("instant", 0), ("original", 1), ("10x", 10), ("0.5X", 0.5), ("2\N{MULTIPLICATION SIGN}", 2)],
)
def test_a_speed_is_a_word_or_a_factor(text: str, factor: float) -> None:
    assert read_speed(text) == factor


@pytest.mark.parametrize("text", ["", "fast", "10", "0x", "-2x", "x"])
def test_no_other_speed_is_taken(text: str) -> None:
    with pytest.raises(ValueError, match="instant, original"):
        read_speed(text)


def test_lines_pass_in_order_and_never_before_they_are_due() -> None:
    clock = [0.0]
    passed: list[tuple[float, list[int]]] = []

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    pacing = Pacing(2, lambda: clock[0], sleep)
    pieces = [Piece("h", "", n, at * SECOND, b"x\n") for n, at in enumerate((3, 3, 5, 9))]

    pacing.pass_on(pieces[:3], lambda group: passed.append((clock[0], [p.sequence for p in group])))
    pacing.pass_on(pieces[3:], lambda group: passed.append((clock[0], [p.sequence for p in group])))

    assert [entry for entry in passed if entry[1]] == [(0, [0, 1]), (1, [2]), (3, [3])]
