"""The two clocks of a shipper: the one of the day, which may be set, and one that only goes on."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Now(NamedTuple):
    """A moment, in nanoseconds of both clocks.

    `wall` is since the epoch: for what survives a restart, is compared with times of files, or is
    shown to people. `steady` never jumps: for all that is waited for.
    """

    wall: int
    steady: int

    def date(self, steady: int) -> int:
        """Return when a moment of the steady clock was, since the epoch."""
        return self.wall - (self.steady - steady)

    def without_step(self, since: "Now") -> int:
        """Return the wall clock as it would be if nobody had set it ahead since then."""
        return min(self.wall, since.date(self.steady))


class Clock(NamedTuple):
    """Both clocks; a call returns the present moment."""

    wall: Callable[[], int] = time.time_ns
    steady: Callable[[], int] = time.monotonic_ns

    def __call__(self) -> Now:
        """Return the present moment."""
        return Now(self.wall(), self.steady())
