"""Of which families a look decides something, and of which it must not. Decides only.

A hard link may show a file in another family than the one it came from, where copies of it are left.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from shipper.files.families import family_of
from shipper.files.sampling import Ask
from shipper.files.sighting import FileKey
from shipper.files.tailer import Tailer

__all__ = ["concerned", "with_homes"]


def concerned(
    asks: Sequence[Ask],
    tailers: Mapping[FileKey, Tailer],
    unseen: Iterable[Tailer],
    lives: Collection[str],
) -> set[str]:
    """Return the families of the files that are glimpsed at, and of those that the look did not show."""
    asked = (tailers.get(ask.sighting.key) for ask in asks)
    families = {ask.sighting.family for ask in asks}
    for tailer in (*unseen, *(tailer for tailer in asked if tailer is not None)):
        families |= {tailer.sighting.family, family_of(tailer.label, lives)}
    return families


def with_homes(
    families: Set[str], tailers: Iterable[Tailer], lives: Collection[str]
) -> frozenset[str]:
    """Return families that moved during a look, and those that share a file with them."""
    held = frozenset(families)
    for tailer in tailers if held else ():
        shared = {tailer.sighting.family, family_of(tailer.label, lives)}
        if shared & held:
            held |= shared
    return held
