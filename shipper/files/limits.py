"""How much is read at a time, and how long an unfinished line is waited for."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """`block_size` and `max_line` in bytes, `grace` in nanoseconds, `open_files` a number of descriptors.

    `hold` is how long, in nanoseconds, a deleted file is kept open that is not read to its end.
    """

    block_size: int
    max_line: int
    grace: int
    open_files: int
    hold: int = 6 * 3600 * 1_000_000_000
