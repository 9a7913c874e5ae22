"""The unit in which a source hands lines on."""

from dataclasses import dataclass

from nats_logship.wire.message import Section


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of one file, or a piece of one line; `read_at` is in nanoseconds since the epoch.

    `continues`: the block before began this line. `is_rest`: the block holds a file's unfinished
    last line, or the part of it that was not shipped yet; no more of the line is expected.
    """

    section: Section
    lines: bytes
    read_at: int
    continues: bool = False
    is_rest: bool = False
