"""What a person may want to know of a followed file. A value."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["FileState", "Stage"]


class Stage(Enum):
    """What became of a followed file; the values are the words for it."""

    FOLLOWING = "following"
    ROTATED = "rotated"
    DELETED = "deleted"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class FileState:
    """A followed file as it was last seen.

    `offset` is the next byte to read, not to acknowledge; `held` are the bytes of an unfinished last line, which wait;
    `since` is when something to read was noticed, in nanoseconds, None where there is nothing. `note` says what keeps
    it from being read. `seen` is when it was last read, in nanoseconds.
    """

    path: str
    file: str
    size: int
    offset: int
    inode: int
    held: int
    seen: int
    since: int | None
    stage: Stage
    note: str
