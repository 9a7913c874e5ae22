"""Lets go of files that stand at no path any more: read to the end, or open for too long. A deleted file is open till then.

Whether one goes is decided in `departure`; this room asks the file itself.
"""

from shipper.files.handles import Handles
from shipper.files.identity import HEAD_BYTES
from shipper.files.limits import Limits
from shipper.files.reader import Reader
from shipper.files.reading import Reading
from shipper.files.tailer import Tailer
from shipper.following.departure import departure
from shipper.following.roster import Roster
from shipper.following.summons import Summons
from shipper.notice import Notice

__all__ = ["Leaving"]


class Leaving:
    """Goes through the files of a roster that the last look did not show."""

    def __init__(self, roster: Roster, handles: Handles, reader: Reader, summons: Summons) -> None:
        self._roster = roster
        self._handles = handles
        self._reader = reader
        self._summons = summons

    async def let_go(self, now: int, limits: Limits) -> list[Notice]:
        """Let go of those that are done with; return what there is to say. `now` is in nanoseconds."""
        notices = []
        for tailer in self._roster.unseen():
            reading = await self._probe(tailer)
            said = departure(tailer, reading, now, limits)
            if said is None:
                tailer.unseen(now, 0 if reading is None else reading.modified)
                self._summons.is_unsettled = True
                continue
            self._roster.leave(tailer)
            notices.append(said)
            if reading is not None and reading.size and tailer.suspect:
                head = await self._handles.head(tailer)
                notices += self._roster.renew(tailer, head, reading.modified, now)
        return notices

    async def _probe(self, tailer: Tailer) -> Reading | None:
        # truncated and then deleted: its rest may be in a copy, and what was written since is still open
        if tailer.sighting.key not in self._handles:
            return None
        descriptor = await self._handles.descriptor(tailer)
        if descriptor is None:
            return None
        if tailer.sighting.packed is not None:
            return Reading(True, tailer.sighting.size, tailer.sighting.modified)
        reading = (await self._reader.read([tailer.probe(descriptor)]))[0]
        tailer.suspect |= not reading.intact
        if len(tailer.beginning) < HEAD_BYTES and not (tailer.suspect or reading.error):
            tailer.glimpsed(await self._handles.head(tailer))
        return reading
