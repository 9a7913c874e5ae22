"""How fast lines are played."""

from receiver.consume.judging import Piece
from receiver.replay.replay import Pacing

SECOND = 1_000_000_000


def test_lines_pass_in_order_and_never_before_they_are_due() -> None:
    clock = [0.0]
    passed: list[tuple[float, list[int]]] = []

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    pacing = Pacing(lambda: clock[0], sleep)
    pieces = [Piece("h", "", n, at * SECOND, b"x\n") for n, at in enumerate((3, 3, 5, 9))]

    for run in (pieces[:3], pieces[3:]):
        passed += [(clock[0], [one.sequence for one in group]) for group in pacing.groups(run)]

    assert [entry for entry in passed if entry[1]] == [(0, [0, 1]), (2, [2]), (6, [3])]
