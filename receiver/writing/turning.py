"""Live files closed though no line comes: because their period is over, or because somebody asks for it.

It goes through the journal as a batch without messages, `[first, first)`: broken off anywhere it is undone by the next
task, and once ended it counts, whatever KV says later.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from broker.app.faults import fault
from receiver.writing.files import Output
from receiver.writing.folders import walk
from receiver.writing.layout import register_keys
from receiver.writing.logbook import Logbook
from receiver.writing.owners import owner_of
from receiver.writing.rotation import is_closed

__all__ = ["leave", "lives_of", "turn"]

_TOGETHER = 1000  # files of one entry of the journal, which may have to be undone in one go


def turn(
    logbook: Logbook,
    output: Output,
    lives: Iterable[str],
    position: tuple[int, int],
    is_due: Callable[[int], bool],
) -> tuple[str, ...]:
    """Close the live files that have lines and whose last line's moment is due; return the closed segments.

    `position` is epoch and sequence of a partition whose journal is clean: all that was written is committed. On disk
    when this returns; raises OSError.
    """
    epoch, first = position
    moments = {live: output.moment(live) for live in lives}
    due = [live for live, moment in moments.items() if moment is not None and is_due(moment)]
    for begin in range(0, len(due), _TOGETHER):
        part = due[begin : begin + _TOGETHER]
        logbook.start(epoch, first, map(output.image, part))
        fault("turn_announced")
        for live in part:
            output.rotate(live)
        output.sync()
        fault("turn_synced")
        logbook.end(first)
        fault("turned")
    return tuple(output.closed)


def lives_of(output: Path, partition: int) -> list[str]:
    """Return the live files of a partition, by the register of owners; raises OSError."""
    owners: dict[tuple[str, ...], int | None] = {}
    lives = []
    for live in walk(output):
        if is_closed(live):
            continue
        keys = register_keys(live)  # the same for all days of a file
        if keys not in owners:
            owners[keys] = owner_of(output, live)
        if owners[keys] == partition:
            lives.append(live)
    return sorted(lives)


def leave(logbook: Logbook, dates: Mapping[str, str], position: tuple[int, int]) -> tuple[str, ...]:
    """Say that files of days that are over are closed as they are, and return those of the last of these days.

    `dates` has the days of the files; those before are known to be over by the file of a later day. `position` is that of
    a partition whose journal is clean: what the journal holds of these files will not be undone. Raises OSError.
    """
    if not dates:
        return ()
    epoch, first = position
    logbook.start(epoch, first, ())
    logbook.end(first)
    last = max(dates.values())
    return tuple(live for live, date in dates.items() if date == last)
