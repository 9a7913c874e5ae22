"""How far each file is acknowledged.

The loop adds files that a scan found, the sender moves the positions with each acknowledgement, the
agent writes them to the broker.
"""

import asyncio
import time
from collections.abc import Callable

from nats_logship.wire.message import Origin
from nats_logship.wire.positions import Cursor, Positions
from shipper.sources.files.memory import find_forgettable
from shipper.sources.files.sampling import find_there
from shipper.sources.source import Source


class Acknowledged:
    """The positions of one run, which cover what is acknowledged.

    `steady` is a clock in nanoseconds that nobody sets.
    `is_unsaved`: the broker does not know yet that a scan added files, or that a file has ended.
    """

    def __init__(self, steady: Callable[[], int] = time.monotonic_ns) -> None:
        self.positions = Positions()
        self.is_unsaved = False
        self._steady = steady
        # by id: when a file that is not followed may have been there last, as far as this run knows
        self._seen_at: dict[str, int] = {}

    def position(self, file: str) -> int:
        """Return how far a file is acknowledged, by its id, in bytes."""
        cursor = self.positions.files.get(file)
        return 0 if cursor is None else cursor.offset

    def advance(self, origin: Origin, sequence: int, stream: str) -> None:
        """Move behind a message that is stored at `sequence`, 0 if that is not known."""
        self.positions = self.positions.advance([origin], sequence, stream)

    def add_found(self, source: Source) -> None:
        """Add the files that are followed, and mark those that have ended."""
        known = self.positions.files
        waiting = filter(source.may_find, known.values())
        starts = source.start_cursors(self.positions.started_files())
        found = self.positions.with_starts([*waiting, *starts])
        ended = source.ended_files
        self.positions = found.with_ended(ended, _followed(source) - ended)
        # a file that is gone by the next start must be known to have ended
        has_ended = self.positions is not found
        self.is_unsaved |= has_ended or bool(self.positions.files.keys() - known.keys())

    async def forget_gone(self, source: Source, now: int) -> None:
        """Forget old files that are gone from the disk; `now` is nanoseconds since the epoch.

        A disk that is mounted late, or a folder that is closed for a while, costs no position.
        """
        unfollowed = self.positions.without(_followed(source)).files.values()
        steady, before = self._steady(), self._seen_at
        self._seen_at = {one.file: before.get(one.file, steady) for one in unfollowed}
        seen = {file: now - (steady - at) for file, at in self._seen_at.items()}
        unwanted = (one for one in unfollowed if not (_is_journal(one) or source.may_find(one)))
        old = find_forgettable(unwanted, now, source.deleted_files, seen)
        there = {(_folder_of(one.path), one.inode) for one in source.files()}
        # a file that was rewritten in place is followed by another id
        left = [one for one in old if (_folder_of(one.path), one.identity.inode) not in there]
        kept = await asyncio.to_thread(find_there, left)
        self._seen_at |= dict.fromkeys(kept, steady)
        # the scan may have found a file again meanwhile
        if gone := {one.file for one in old} - kept - _followed(source):
            self.positions = self.positions.without(gone)


def _is_journal(cursor: Cursor) -> bool:
    """Whether it is one that may be read again, however long the agent runs without --journal."""
    return cursor.unit == "entries" and not cursor.ended


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _followed(source: Source) -> set[str]:
    return {state.file for state in source.files()}
