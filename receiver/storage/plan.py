"""What a batch does to a live file: the pieces that are appended, and where it is closed between them. Decides only."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from receiver.storage.rotation import Calendar, is_due
from receiver.storage.store import FileRow, SegmentRow

__all__ = ["Live", "Run", "Step", "add_piece", "difference", "planned"]


@dataclass(slots=True)
class Run:
    """Lines of a file in one period of rotation, which ends at `end`; `moment` is when the last of them were stored."""

    end: int
    moment: int
    pieces: list[bytes] = field(default_factory=list)


def add_piece(runs: list[Run], piece: bytes, moment: int, calendar: Calendar) -> None:
    """Add lines that were stored at a moment to the runs of a file."""
    if not runs or moment >= runs[-1].end:
        runs.append(Run(calendar.period(moment).end, moment))
    runs[-1].pieces.append(piece)
    runs[-1].moment = moment


@dataclass(slots=True)
class Live:
    """A live file as the batch has it by now; `row` is what was committed of it."""

    row: FileRow
    size: int
    moment: int
    number: int
    inode: int
    is_new: bool = False
    must_close: bool = False
    is_unannounced: bool = False


Step = Sequence[bytes] | SegmentRow
"""Pieces to append, or the segment that the file is closed as."""

Closing = Callable[[Live, int, int, int], SegmentRow]
"""Gives the segment that a live file is closed as, from a number on, with a size, and the moment of its last line."""


def planned(
    live: Live, runs: Iterable[Run], limit: int, calendar: Calendar, closing: Closing
) -> list[Step]:
    """Return the steps that append runs; segments are closed beyond `limit` bytes (0 is never), and when their period is over."""
    steps: list[Step] = []
    size, moment, number = live.size, live.moment, live.number
    for run in runs:
        is_over = live.must_close or moment < calendar.period(run.moment).begin
        live.must_close = False
        if size and is_over:
            closed = closing(live, number, size, moment)
            steps.append(closed)
            size, number = 0, closed.number + 1
        moment = max(run.moment, moment)
        begin = 0
        for index, piece in enumerate(run.pieces):
            if is_due(size, len(piece), limit):
                closed = closing(live, number, size, moment)
                steps += (run.pieces[begin:index], closed)
                begin, size, number = index, 0, closed.number + 1
            size += len(piece)
        steps.append(run.pieces[begin:])
    live.moment = moment
    return steps


def difference(row: FileRow, found: os.stat_result | None) -> str:
    """Return what somebody else did to a live file since it was committed, in a sentence; nothing if nothing."""
    if not row.length:
        return ""
    had = f"{row.path}, of which {row.length} bytes were written"
    if found is None or (found.st_ino != row.inode and not found.st_size):
        return f"{had}, is gone: it was moved or removed by somebody else; a new one begins"
    if found.st_ino != row.inode:
        return f"{had}, was replaced by another file; what is there is closed and a new one begins"
    if found.st_size < row.length:
        return (
            f"{had}, was cut to {found.st_size} bytes by somebody else: lines are missing in it; "
            "what is there is closed and a new one begins"
        )
    if found.st_size > row.length:
        return (
            f"{had}, has {found.st_size} bytes: somebody else has written to it; "
            "what is there is closed and a new one begins"
        )
    return ""
