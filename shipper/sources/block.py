"""The unit in which a source hands lines on."""

from dataclasses import dataclass

from nats_logship.wire.message import Section


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records of one file, or a piece of one; `read_at` is in nanoseconds since the epoch.

    A record is a line, or lines that belong together. `continues`: the block before began this
    record. `goes_on`: the next block continues the last one. `is_rest`: the block holds a file's
    unfinished last line, or the part of it that was not shipped yet; no more of it is expected.
    """

    section: Section
    lines: bytes
    read_at: int
    continues: bool = False
    is_rest: bool = False
    goes_on: bool = False
