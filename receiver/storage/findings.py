"""How far source files were received, and what was found out about sections that do not follow there. Values only."""

from dataclasses import dataclass
from enum import Enum


class FindingKind(Enum):
    """What was found out about a section."""

    GAP = "gap"
    """Bytes of the source file between what was received and this section never came."""
    LOSS = "loss"
    """Messages of the host were removed from the stream unreceived; where their bytes are known, a gap names them as well."""
    REPEAT = "repeat"
    """The section, or its beginning, had been received before and was not written again."""
    DOUBT = "doubt"
    """Its beginning had come before, but with lines left out: it was written whole, and some lines may stand there twice."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The bytes `[start, end)` of a source file of a host; of a loss neither is known.

    `sequence` is that of the message that showed it, `read_at` when that was read, `since` when the one before it was, in
    nanoseconds since the epoch; `after` is, of a loss, the sequence of the host's last message before. 0 is not known.
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


class Ends(dict[tuple[str, str], tuple[int, int]]):
    """How far source files were received, by host and file, and when that was read in nanoseconds; (-1, 0) where it is not known.

    The file `""` of a host stands for its messages: the end is the sequence of the last one. That of the host `""` is the
    sequence up to which messages of hosts that are not known may have been received.
    """

    def __missing__(self, key: tuple[str, str]) -> tuple[int, int]:
        return -1, 0
