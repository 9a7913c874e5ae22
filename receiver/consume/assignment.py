"""What the driver asks of a Spark task, and what that answers: values that travel; they say nothing that is not on disk."""

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
    """A folder, and the mark that tells it from all others."""

    folder: Path
    mark: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where and how lines are written; the same for every task of a receiver.

    `rotate_size` is in bytes, 0 is never; so is a `rotate_every` of no time, which goes by the clock of `time_zone`. What
    `access` names is read where the task runs. `path_template` was checked to be one. `folders` must be
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
    folders: tuple[MarkedFolder, ...] = ()
    partitions: int = 0
    streams: int = 1


class ForcedRotation(Enum):
    """Which live files are closed, although no line comes: those whose period is over, or all that have lines."""

    NONE = "none"
    DUE = "due"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long a task stays at its partition, in seconds: for one batch, when nothing else is said.

    It goes on with batch after batch for `longest`, or up to a quarter less by chance, but only for
    `telling` when there is something to tell but counts, and leaves as soon as nothing has come for
    `silence`. Pulls that empty the stream are at least `linger` apart, since each costs about the
    same for one message as for a hundred, and so does a commit: a batch takes what comes for
    `gather`. Entering costs sixty milliseconds of processor time; staying costs nothing. It waits
    for `lock` while another task holds the partition's lock, and a host's claim for the host's old
    partition until that has committed nothing for `still`, if this partition could be received as
    long.
    """

    longest: float = 0.0
    silence: float = 0.0
    linger: float = 0.0
    gather: float = 0.0
    report_within: float = inf
    lock: float = 20.0
    stalled_after: float = 3600.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A session at one partition: batches of about `limit` bytes of messages, pulled `pull` bytes at a time.

    `first` is where the driver believes the offset to be; KV may know better. On the subject `leave` the driver asks to be
    given the slot back at the next end of a batch. With a `rotation` files are closed and nothing is read.
    """

    partition: int
    first: int
    epoch: int
    limit: int
    rotation: ForcedRotation = ForcedRotation.NONE
    pull: int = LARGEST_PULL
    session: SessionLimits = SessionLimits()
    leave: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """Batches that are on disk, `[first, until)` in stream sequences: one that waits for its commit, or those of a session.

    `ack` is the subject that acknowledges the last message; `pending` is how many messages the consumer still held then.
    `commit` is the id of the last batch, which the offset has when that is committed.
    `stored_at` is when the last message was stored, in nanoseconds since the epoch. `closed` names the segments closed by
    rotation, relative to the output folder, `notices` tell what somebody else did to files.
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
    commit: str = ""
    stored_at: int = 0
    closed: tuple[str, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell, or to do, but counting."""
        return bool(self.closed or self.anomalies or self.notices or self.quarantined)

    def then(self, later: "Done") -> "Done":
        """Return this and the batch behind it as one."""
        added = ("messages", "lines", "size", "quarantined", "closed", "anomalies", "notices")
        sums = {name: getattr(self, name) + getattr(later, name) for name in added}
        return replace(later, first=self.first, **sums)


class Cause(Enum):
    """Why a partition cannot go on for now; the lines wait in the stream."""

    DISK = "disk"  # the output or state folder takes no data
    BROKER = "broker"  # it is away or answers with an error
    LOCKED = "locked"  # another process holds the partition's lock
    SPARK = "spark"  # it gave up on the task after its attempts
    REACH = "reach"  # the machine that the task runs on does not see the output or state folder
    MOVED = "moved"  # a host came from another partition, which has lines of it to receive yet
    STATE = "state"  # store, files and offset contradict each other; a person has to decide


@dataclass(frozen=True, slots=True)
class Blocked:
    """A batch that could not be written; the next session undoes what there is of it, and tries again."""

    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The partition is ours no more: `successor` is the receiver that owns it, empty where a person has moved its offset."""

    detail: str
    successor: str = ""


class Ending(Enum):
    """Why a session ended that could have gone on."""

    SILENCE = "silence"  # nothing more came
    TIME = "time"  # it had lasted as long as it may
    ASKED = "asked"  # the driver asked for it


@dataclass(frozen=True, slots=True)
class Report:
    """A session at a partition: what was committed in it, in how many batches, and how it ended.

    `seconds` were spent on those batches, from the arrival of the first messages of each to its commit.
    """

    done: Done
    batches: int
    outcome: Ending | Blocked | Superseded
    seconds: float = 0.0
