"""What is read of a file at a time: a run of whole lines, and where it came from. A value."""

from dataclasses import dataclass

from broker.wire.message import Section

__all__ = ["Block"]


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole lines of one file.

    `read_at` is when it was read, in nanoseconds since the epoch. `continues` says that it begins inside a line, whose
    beginning is in the block before.
    """

    section: Section
    lines: bytes
    read_at: int
    continues: bool = False
