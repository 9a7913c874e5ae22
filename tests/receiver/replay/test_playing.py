"""How fast lines are played."""

from receiver.consume.judging import Piece
from receiver.replay.replay import LineRun, paced

SECOND = 1_000_000_000


def test_lines_pass_in_order_and_never_before_they_are_due() -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    pieces = [Piece("h", "", n, at * SECOND, b"x\n") for n, at in enumerate((3, 3, 5, 9))]
    runs = paced([LineRun(pieces[:3]), LineRun(pieces[3:])], lambda: clock[0], sleep)
    passed = [(clock[0], [one.sequence for one in run.pieces]) for run in runs]

    assert [entry for entry in passed if entry[1]] == [(0, [0, 1]), (2, [2]), (6, [3])]
