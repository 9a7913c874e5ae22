"""What was found out about sections that do not simply follow their predecessors. Values only."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "FindingKind"]


class FindingKind(Enum):
    """What was found out about a section that does not simply follow its predecessor."""

    GAP = "gap"
    """Bytes of the source file between what was received and this section never came."""
    LOSS = "loss"
    """Messages of the host were removed from the stream before they were received; where the bytes of a file are known
    that never came, a gap names them as well."""
    REPEAT = "repeat"
    """The section, or its beginning, had been received before and was not written again."""
    DOUBT = "doubt"
    """The section's beginning had been received before, but which of its lines those are cannot be told, as lines were
    left out of it: it was written whole, and the lines of these bytes may stand there twice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A gap or a repeat: the bytes `[start, end)` of a source file of a host; of a loss neither is known.

    `sequence` is the stream sequence of the message that showed it and `read_at` when that was read, `since` when
    the one before it was, both in nanoseconds since the epoch; 0 where that is not known.
    """

    kind: FindingKind
    host: str
    file: str
    file_id: str
    start: int
    end: int
    sequence: int
    read_at: int
    since: int = 0
    after: int = 0
    """Of a loss: the sequence of the host's last message before it; 0 for none."""
