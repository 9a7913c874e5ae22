"""What a Spark task answers: what it committed in its stay, and why it ended. Values; they say nothing that is not on disk."""

from dataclasses import dataclass, replace
from enum import Enum

from receiver.consume.judging import Finding

__all__ = ["Blocked", "Cause", "Done", "Ending", "Report", "Superseded"]


@dataclass(frozen=True, slots=True)
class Done:
    """Batches that are on disk, `[first, until)` in stream sequences: one that waits for its commit, or those of a stay.

    `ack` is the subject that acknowledges the last message; `pending` is how many messages the consumer still held then.
    `stored_at` is when the last message was stored, in nanoseconds since the epoch, and `latest` the moment whose day no
    line goes before: were the broker's clock set back, that is not the last one's. `closed` names the segments closed by
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
    stored_at: int = 0
    latest: int = 0
    closed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell, or to do, but counting."""
        return bool(self.closed or self.findings or self.notices or self.quarantined)

    def then(self, later: "Done") -> "Done":
        """Return this and the batch behind it as one."""
        return replace(
            later,
            first=self.first,
            latest=max(self.latest, later.latest),
            messages=self.messages + later.messages,
            lines=self.lines + later.lines,
            size=self.size + later.size,
            quarantined=self.quarantined + later.quarantined,
            closed=self.closed + later.closed,
            findings=self.findings + later.findings,
            notices=self.notices + later.notices,
        )


class Cause(Enum):
    """Why a partition cannot go on for now; the lines wait in the stream."""

    DISK = "disk"
    """The output or state folder takes no data: full, read-only, quota, input/output error, no permission."""
    BROKER = "broker"
    """The broker is away or answers with an error."""
    LOCKED = "locked"
    """Another process holds the partition's lock."""
    SPARK = "spark"
    """Spark gave up on the task after its attempts."""
    REACH = "reach"
    """The machine that the task runs on does not see the output or state folder."""
    MOVED = "moved"
    """A host was in another partition before, and its lines there are not received yet."""
    STATE = "state"
    """Store, files and offset contradict each other; a person has to decide."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A batch that could not be written, undone as far as the disk allows; to be tried again later."""

    partition: int
    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The partition is ours no more: `successor` is the receiver that owns it, empty where a person has moved its offset."""

    partition: int
    detail: str
    successor: str = ""


class Ending(Enum):
    """Why a stay ended that could have gone on."""

    SILENCE = "silence"
    """Nothing more came."""
    TIME = "time"
    """It had lasted as long as it may."""
    ASKED = "asked"
    """The driver asked for it."""


@dataclass(frozen=True, slots=True)
class Report:
    """A stay at a partition: what was committed in it, in how many batches, and how it ended.

    `seconds` were spent on those batches, from the arrival of the first messages of each to its commit.
    """

    done: Done
    batches: int
    ended: Ending | Blocked | Superseded
    seconds: float = 0.0
