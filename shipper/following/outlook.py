"""What one look at the folders showed, each file once, by what it is looked up by. Values only; remembers nothing."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shipper.files.sighting import FileKey, Sighting

__all__ = ["Outlook", "outlook"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The files of a look: all, those at live paths by path, and the inodes of each family.

    `before` is when the look before this one was, in nanoseconds; None for the first one.
    """

    before: int | None = None
    files: Mapping[FileKey, Sighting] = field(default_factory=dict)
    live: Mapping[str, Sighting] = field(default_factory=dict)
    inodes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def outlook(
    sightings: Iterable[Sighting], followed: Mapping[FileKey, str], before: int | None
) -> Outlook:
    """Sort out a look; `followed` are the paths of the files that are followed.

    Hard links and symbolic links show one file at several paths; the one that it was followed at stays.
    """
    files: dict[FileKey, Sighting] = {}
    inodes: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
    for sighting in sorted(sightings, key=lambda s: (not s.is_live, not s.wanted, s.path)):
        chosen = files.setdefault(sighting.key, sighting)
        if followed.get(sighting.key) == sighting.path and chosen.is_live == sighting.is_live:
            files[sighting.key] = sighting
    for sighting in files.values():
        inodes[sighting.family] += (sighting.key.inode,)
    return Outlook(before, files, {s.path: s for s in files.values() if s.is_live}, inodes)
