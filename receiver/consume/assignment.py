"""What the driver asks of a Spark task: one partition, from one sequence on, into one place. Values that travel."""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from math import inf
from pathlib import Path

from broker.client.access import Access
from receiver.permissions import Permissions

__all__ = ["LARGEST_PULL", "Assignment", "Destination", "Place", "Stay", "Turn"]

LARGEST_PULL = 16 * 1024 * 1024
"""Bytes of one pull, at most: the server drops a client with more than 64 MB unsent."""

_SMALL = 1024 * 1024  # bytes of lines; while batches are larger, rate matters more than latency
_LONG = 2.5  # how much longer the pause is then


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and the mark that tells it from all others."""

    folder: Path
    mark: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how lines are written; the same for every task of a receiver.

    `rotate_size` is in bytes, 0 is never; so is a `rotate_every` of no time, which goes by the clock of `time_zone`. What
    `access` names is read where the task runs. `path_template` was checked to be one. `places` must be
    what is seen there: executors may see others, and on the driver's machine a disk may have been unmounted. `partitions`
    is how many there are, 0 where that is not known, and `streams` how many they are spread over.
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
    places: tuple[Place, ...] = ()
    partitions: int = 0
    streams: int = 1


class Turn(Enum):
    """Which live files are closed, although no line comes that would do it."""

    NONE = "none"
    DUE = "due"
    """Those whose last line is of an earlier period of rotation."""
    ALL = "all"
    """All that have lines."""


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a task stays at its partition, in seconds: for one batch, when nothing else is said.

    It goes on with batch after batch for `longest`, but only for `telling` when there is something to tell but counts, or
    still more to read, and leaves as soon as nothing has come for `silence`. Batches that empty the stream begin at
    least `linger` apart.

    Entering costs Spark thirty milliseconds of processor time, and lines that come meanwhile wait twice as long;
    staying costs nothing.
    """

    longest: float = 0.0
    silence: float = 0.0
    linger: float = 0.0
    telling: float = inf

    def short(self) -> "Stay":
        """Return one batch of it, after which it is told that the partition goes on."""
        return replace(self, longest=0.0)

    def patient(self) -> "Stay":
        """Return it as it is where something has come soon after each silence: silence ends it no more."""
        return replace(self, silence=self.longest)

    def rest(self, size: int) -> float:
        """Return how many seconds after a batch of `size` bytes that emptied the stream began the next one may begin.

        A batch costs about the same for a line as for a thousand; what arrives meanwhile makes the next one worth it.
        """
        return self.linger if size < _SMALL else self.linger * _LONG


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stay at one partition: batches of about `limit` bytes of messages, pulled `pull` bytes at a time.

    `first` is where the driver believes the offset to be; KV knows better when an attempt of the same task, or a stay whose
    report was lost, has moved it on. How far a batch goes, its `until`, is decided by what the task finds. On the subject
    `leave` the driver asks to be given the slot back at the next end of a batch. With a `turn` files are
    turned and nothing is read. `passed` is when the line before `first` was stored, in nanoseconds since the epoch, 0 where
    that is not known.
    """

    partition: int
    first: int
    epoch: int
    limit: int
    turn: Turn = Turn.NONE
    pull: int = LARGEST_PULL
    stay: Stay = Stay()
    leave: str = ""
    passed: int = 0
