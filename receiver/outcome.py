"""What a Spark task answers: done, blocked or superseded. Values; they say nothing that is not on disk."""

from dataclasses import dataclass
from enum import Enum

from receiver.writing.spans import Finding

__all__ = ["Blocked", "Cause", "Done", "Outcome", "Superseded"]


@dataclass(frozen=True, slots=True)
class Done:
    """A batch that is on disk, `[first, until)` in stream sequences, and waits for its commit.

    `ack` is the subject that acknowledges its last message; `pending` is how many messages the consumer still held then. `stored_at` is when the last message was stored, in
    nanoseconds since the epoch. `closed` names the segments closed by rotation, relative to the output folder,
    `notices` tell what somebody else did to files.
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
    closed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    notices: tuple[str, ...] = ()


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
    STATE = "state"
    """Journal, files and offset contradict each other; a person has to decide."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A batch that could not be written, undone as far as the disk allows; to be tried again later."""

    partition: int
    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The partition has another owner by now; this receiver must stop."""

    partition: int
    detail: str


Outcome = Done | Blocked | Superseded
