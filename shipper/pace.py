"""How the loop of an agent breathes, and when it looks at the folders again. Decides; knows no clock."""

from dataclasses import dataclass, field

from shipper.settings import Compression
from shipper.sieve import Rules

__all__ = ["Pace", "Schedule", "schedule"]


@dataclass(frozen=True, slots=True)
class Pace:
    """How the loop breathes; lengths in seconds, sizes in bytes.

    `look_after` is how soon after the last look another one may follow when files came or went, `look_every` and
    `look_at_least_every` bound how often to look anyway. After a round of less than `small` bytes nothing is read until
    `breath` after its start, so that a busy log makes ten rounds in a second, not a thousand. `patience` bounds one
    round with `once`. `rules` say which lines are left out.
    """

    round_size: int
    compression: Compression
    once: bool
    patience: float | None
    look_after: float = 0.2
    look_every: float = 5.0
    look_at_least_every: float = 60.0
    breath: float = 0.1
    small: int = 128 * 1024
    rules: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many seconds after a look the next one comes."""

    when_called: float
    when_unsettled: float
    anyway: float


def schedule(pace: Pace, took: float) -> Schedule:
    """Return when to look again after a look that took so many seconds: looks take a tenth of the time at most.

    While a file waits for its end they take a fiftieth, and a five hundredth when nothing calls for them.
    """
    soon = max(pace.look_every, 50 * took)
    rarely = max(soon, min(pace.look_at_least_every, 500 * took))
    return Schedule(max(pace.look_after, 10 * took), soon, rarely)
