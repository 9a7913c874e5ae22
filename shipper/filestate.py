"""What a person may want to know of a followed file. A value."""

from dataclasses import dataclass

__all__ = ["FileState"]


@dataclass(frozen=True, slots=True)
class FileState:
    """A followed file as it was last seen.

    `offset` is the next byte to read, not to acknowledge; `held` are the bytes of an unfinished last line, which wait;
    `since` is when something to read was noticed, in nanoseconds, None where there is nothing. `note` says why it does
    not move, or what became of it.
    """

    path: str
    file: str
    size: int
    offset: int
    inode: int
    held: int
    since: int | None
    note: str
