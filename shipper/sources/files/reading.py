"""What one read of an open file gives."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """A run of whole lines, the unfinished line behind them, and the bytes before them.

    `rest` is the unfinished line and `held` its length; `rest` of an over-long line is empty.
    `hole`: NULs behind the run that are left out. `padding`: NULs at the file's end that may be
    overwritten. `is_intact`: what had been read before is still there; if not, nothing was read.
    `is_complete` is False at the end of a compressed file whose last stream has no end; `damage`
    says why it cannot have one. `size` and `modified` (nanoseconds) are those of the file.
    """

    is_intact: bool
    size: int
    modified: int
    run: bytes = b""
    rest: bytes = b""
    tail: bytes = b""
    held: int = 0
    hole: int = 0
    padding: int = 0
    error: str = ""
    is_complete: bool = True
    damage: str = ""
