"""The values that travel between the driver and its Spark tasks: assignments there, reports back.

A report only describes what is on disk and in KV: a lost report loses no line.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from math import inf
from pathlib import Path

from nats_logship.client.access import Access
from receiver.storage.anomalies import Anomaly
from receiver.storage.layout import Permissions

LARGEST_PULL = 16 * 1024 * 1024
"""Bytes of one pull, at most: the server drops a client with more than 64 MB unsent."""


@dataclass(frozen=True, slots=True)
class MarkedFolder:
    """A folder, and the mark that identifies it."""

    folder: Path
    mark: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how lines are written; the same for every task of a receiver.

    `rotate_size` is in bytes, 0 for never; `rotate_every` is aligned to the clock of `time_zone`, 0
    for never. The files that `access` names are read where the task runs. `path_template` is valid.
    A task requires its `folders` to be the driver's: an executor may see others, and the driver's
    disk may have been unmounted. `partitions` is how many there are, 0 if that is not known, and
    `streams` how many they are spread over. `broker` is that of `PartitionFolders`.
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
    folders: tuple[MarkedFolder, ...] = ()
    partitions: int = 0
    streams: int = 1
    broker: str = ""


class ForcedRotation(Enum):
    """Which live files a task closes although no line comes."""

    NONE = "none"
    DUE = "due"  # those whose period is over
    ALL = "all"  # all that have lines


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a session lasts and waits, in seconds; by default it is one batch.

    It lasts for `longest`, but only for `report_within` if it has news for the driver (closed
    files, anomalies, notices). It ends if nothing has come for `silence`: to start a session costs
    60 ms of processor time, to wait costs nothing. What comes is written at most `linger` later,
    sooner if many lines come, and committed `commit_every` after the batch's first message: a
    commit costs about the same for one message as for a hundred. A session waits for at most `lock`
    while another task has the partition. A host's claim waits for the host's former partition until
    that has committed nothing for `stalled_after`, if nothing has disturbed this receiver for as
    long.
    """

    longest: float = 0.0
    silence: float = 0.0
    linger: float = 0.0
    commit_every: float = 0.0
    report_within: float = inf
    lock: float = 20.0
    stalled_after: float = 3600.0


@dataclass(frozen=True, slots=True)
class Done:
    """Messages `[first, until)` that are on disk: a batch before its commit, or a whole session.

    `size` is the bytes of lines. `ack` is the subject that acknowledges the last message; `pending`
    is how many messages the consumer had left then. `commit_id` is that of the last batch.
    `stored_at` is when the broker stored the last message, in nanoseconds since the epoch. `closed`
    names closed segments, relative to the output folder; `notices` say what somebody else did to
    files.
    """

    partition: int
    first: int
    until: int
    messages: int = 0
    lines: int = 0
    size: int = 0
    quarantined: int = 0
    pending: int = 0
    ack: str = ""
    commit_id: str = ""
    stored_at: int = 0
    closed: tuple[str, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def has_news(self) -> bool:
        """Whether the driver has more to do than to count."""
        return bool(self.closed or self.anomalies or self.notices or self.quarantined)

    def then(self, later: "Done") -> "Done":
        """Return this and the batch behind it as one."""
        added = ("messages", "lines", "size", "quarantined", "closed", "anomalies", "notices")
        sums = {name: getattr(self, name) + getattr(later, name) for name in added}
        return replace(later, first=self.first, **sums)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A session at one partition: batches of about `limit` bytes, pulled `pull` bytes at a time.

    `first` is where the driver believes the offset to be; the task reads it in KV. The driver
    publishes to the subject `leave` if the task is to end after its batches. With a `rotation`
    files are closed, and nothing is received but lines that a killed task has left in them. With
    `renew` the consumer is made again: the last sessions got no message that waits.
    """

    partition: int
    first: int
    epoch: int
    limit: int
    rotation: ForcedRotation = ForcedRotation.NONE
    pull: int = LARGEST_PULL
    session: SessionLimits = SessionLimits()
    leave: str = ""
    renew: bool = False

    @property
    def nothing(self) -> Done:
        """The result of a session that commits nothing."""
        return Done(self.partition, self.first, self.first)


class Cause(Enum):
    """Why a partition cannot be received at present; its lines wait in the stream."""

    DISK = "disk"  # the output or state folder takes no data
    BROKER = "broker"  # the broker is away or answers with an error
    LOCKED = "locked"  # another process holds the partition's lock
    SPARK = "spark"  # Spark has given up on the task, or the task does not report
    REACH = "reach"  # the task's machine does not see the output or state folder
    MOVED = "moved"  # a host's former partition still has lines of it to receive
    STATE = "state"  # store, files and offset contradict each other: a person has to decide


@dataclass(frozen=True, slots=True)
class Blocked:
    """A session could not go on; the next one undoes what is not committed and tries again."""

    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The receiver owns the partition no longer.

    `successor` is the receiver that owns it, empty if a person has moved the offset.
    """

    detail: str
    successor: str = ""


class Ending(Enum):
    """Why a session ended that could have gone on."""

    SILENCE = "silence"  # nothing more has come
    TIME = "time"  # it has lasted as long as it may
    ASKED = "asked"  # the driver has asked for it


@dataclass(frozen=True, slots=True)
class Report:
    """A session at a partition: what was committed, in how many batches, and how it ended.

    `seconds` is the time from the arrival of each batch's first messages to its commit, summed.
    """

    done: Done
    batches: int
    outcome: Ending | Blocked | Superseded
    seconds: float = 0.0
