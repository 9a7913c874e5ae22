"""The rows of a store that other modules work with: the stored batch, live files, closed segments.

Moments are in nanoseconds since the epoch. A column `…_before` holds the value from before the
row's `batch`, so that this batch can be undone.
"""

import os
from typing import NamedTuple

_INODES = 2**63 - 1  # integers of SQLite; file systems that hash have inodes of 64 bits
UNKNOWN = "?"
"""`FileRow.unfinished` of adopted files: the next batch closes the file before it appends."""


class StoredBatch(NamedTuple):
    """The batch that was stored last: messages `[first, until)` of a stream.

    The batch is committed if the offset in KV names its `commit_id`. It has to be undone if the
    offset still names `previous_id`.
    """

    number: int
    epoch: int  # of the claim under which the batch was written
    first: int
    until: int
    commit_id: str = ""
    previous_id: str = ""  # the commit_id of the batch before
    stream: str = ""
    created: str = ""  # when the stream was created (RFC 3339); empty if not known
    store_inode: int = 0  # of the database file: a copy of it has another one
    output_inode: int = 0  # of the output folder
    template: str = ""  # the path template of all files; empty if not known


class FileRow(NamedTuple):
    """A live file."""

    path: str  # relative to the output folder
    host: str  # empty for the report of gaps
    source: str  # the source file, if the path template has {file}
    day: str  # YYYY-MM-DD, if the path template has {date}
    length: int = 0  # bytes
    length_before: int = 0
    inode: int = 0  # 0 for a file that is not created yet
    number: int = 1  # of the next segment that the file is closed as
    last_line: int = 0  # when the broker stored the newest line
    last_line_before: int = 0
    unfinished: str | None = None  # the open line at the end (OpenLine.as_text); None for no open
    unfinished_before: str | None = None
    batch: int = 0  # the last batch that wrote to the file
    left_in: int = 0  # the batch that left the file to another partition; 0 for none


class SegmentRow(NamedTuple):
    """A closed segment."""

    path: str  # without the suffix of compression; equals `live` for a file of a day that is over
    live: str  # the path of the live file that was closed
    number: int
    day: str
    size: int  # bytes on disk
    last_line: int  # when the broker stored the newest line
    compressed: str  # the suffix of the compressed form; empty if not compressed
    batch: int  # the batch that closed the file
    length: int | None = None  # bytes of lines; None if not counted


def inode_of(found: os.stat_result) -> int:
    """Return the inode of a file as a store can keep it."""
    return found.st_ino & _INODES
