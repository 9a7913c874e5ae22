"""How much is read at a time, and how long an unfinished line is waited for."""

from dataclasses import dataclass

__all__ = ["LEAST_SHARE", "Limits"]

LEAST_SHARE = 256 * 1024
"""Bytes that each of many files is given at a time: few enough to be fair, enough to be worth the visit."""


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

    @property
    def share(self) -> int:
        """Bytes that a file is given at least at its turn."""
        return min(LEAST_SHARE, self.block_size)
