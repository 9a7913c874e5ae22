"""Holds lines back until they are due: the shell around `pace`."""

from collections.abc import Callable, Sequence

from receiver.consume.judging import Piece
from receiver.replay.pace import Pace

__all__ = ["Pacing"]

_TOGETHER = 0.01  # seconds; lines that are due so close to one another go together


class Pacing:
    """Lets pieces pass in groups, each when it is due."""

    def __init__(
        self, factor: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """`factor` is how many times faster than they were stored, 0 at once; `clock` and `sleep` are in seconds."""
        self._factor = factor
        self._clock = clock
        self._sleep = sleep
        self._pace: Pace | None = None

    def pass_on(self, pieces: Sequence[Piece], take: Callable[[Sequence[Piece]], None]) -> None:
        """Give all of `pieces` to `take`, in order, not before they are due."""
        if not self._factor:
            take(pieces)
            return
        group: list[Piece] = []
        for piece in pieces:
            if self._pace is None:
                self._pace = Pace(self._factor, self._clock(), piece.stored_at)
            left = self._pace.due(piece.stored_at) - self._clock()
            if left > _TOGETHER:
                take(group)
                group = []
                self._sleep(left)
            group.append(piece)
        take(group)
