"""Takes a picture of the folders whose parts belong together: what was sighted, glimpsed at, and stands there afterwards.

A copy that is made, and its original truncated, between two of these would be found behind what was written since. Changes
nothing; what moves on all the time is held until it stands still.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shipper.files.discovery import scan, stirred
from shipper.files.sampling import Ask, Sample, sample
from shipper.files.selection import Selection
from shipper.files.sighting import FileKey, Scan
from shipper.following.roster import Roster
from shipper.notice import Notice

__all__ = ["Picture", "look"]

_TRIES = 3
"""How often a picture is taken anew at once when files moved on meanwhile."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen; `is_restless` says that another look is due, since the roster holds some families until then."""

    shown: Scan
    samples: dict[FileKey, Sample]
    refused: list[Notice]
    notices: list[Notice]
    is_restless: bool


async def look(
    selection: Selection, roster: Roster, now: int, is_open: Callable[[FileKey], bool]
) -> Picture:
    """Look at the folders and at what must be glimpsed at there, for the roster to settle; raises OSError as `scan` does."""
    notices: list[Notice] = []
    for _ in range(_TRIES):
        shown = await asyncio.to_thread(scan, selection, tuple(roster.memory.lives))
        asks, said = roster.sight(shown.sightings, now, is_open)
        notices += said
        found = await _glimpse(asks) if asks else {}
        restless = {ask.sighting.family for ask in asks if ask.sighting.key not in found}
        if families := roster.concerned(asks):
            restless |= await asyncio.to_thread(stirred, shown, families, selection)
        if not restless:
            break
    roster.hold(restless)
    samples = {key: seen for key, seen in found.items() if isinstance(seen, Sample)}
    refused = [seen for seen in found.values() if isinstance(seen, Notice)]
    return Picture(shown, samples, refused, notices, bool(restless))


async def _glimpse(asks: Sequence[Ask]) -> dict[FileKey, Sample | Notice]:
    over = threading.Event()
    try:
        return await asyncio.to_thread(sample, asks, over.is_set)
    finally:
        over.set()
