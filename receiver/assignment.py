"""What the driver asks of a Spark task: one partition, from one sequence on, into one place. Values that travel."""

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path

from broker.access import Access
from receiver.permissions import Permissions

__all__ = ["Assignment", "Destination", "Turn"]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how lines are written; the same for every task of a receiver.

    `rotate_size` is in bytes, 0 is never; so is a `rotate_every` of no time, which goes by the clock of `time_zone`. What
    `access` names is read where the task runs. `path_template` was checked to be one.
    """

    output: Path
    state: Path
    rotate_size: int
    servers: tuple[str, ...]
    rotate_every: timedelta = timedelta()
    access: Access = Access()  # noqa: RUF009 - a frozen value
    time_zone: str = "UTC"
    path_template: str = "{host}.log"
    permissions: Permissions = Permissions()  # noqa: RUF009 - a frozen value


class Turn(Enum):
    """Which live files are closed, although no line comes that would do it."""

    NONE = "none"
    DUE = "due"
    """Those whose last line is of an earlier period of rotation."""
    ALL = "all"
    """All that have lines."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One batch of one partition, as planned: from `first` on, until about `limit` bytes of messages or nothing more.

    How far a batch really went, its `until`, is decided by what the task finds and is part of its outcome; since a
    repeated attempt first undoes what the earlier one wrote, the two need not agree. With a `turn` files are
    turned and nothing is read.
    """

    partition: int
    first: int
    epoch: int
    limit: int
    turn: Turn = Turn.NONE
