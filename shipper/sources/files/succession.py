"""Which file was written before which: the order in which the files of one chain are read.

    app.log was A, then B, now C   →   A, B, C, whatever A and B are called by now

Pure rules on files that were seen. An order that was given once stays: the file that came to a path
later follows the one that was there before. Names and times decide only about files that are new.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeVar

from shipper.sources.files.paths import place_in_names
from shipper.sources.files.scan import FileEntry


class Seen(Protocol):
    """A file as it was seen last."""

    @property
    def entry(self) -> FileEntry:
        """Where it was, and how large it was."""


class Ordered(Seen, Protocol):
    """What is put in order.

    `is_fresh` says that nothing was known of the file before it was found. `label` is the path at
    which it was found if a pattern shows that, else its live path. `turn` is the place that it got
    when it was put in order before, None where it was not.
    """

    is_fresh: bool
    label: str
    turn: int | None
    unseen_since: int | None

    @property
    def is_rotated(self) -> bool:
        """Whether the file is not at its live path any more."""


File = TypeVar("File", bound=Ordered)
Sighting = TypeVar("Sighting", bound=Seen)


def is_newer_by_name(one: FileEntry, other: FileEntry) -> bool | None:
    """Whether a file was rotated away after another one, by their names; None if unknown."""
    place, before = place_in_names(one.path), place_in_names(other.path)
    if place is None or before is None or place[0] != before[0] or place[1] == before[1]:
        return None
    return place[1] > before[1]


def is_newer(one: FileEntry, other: FileEntry) -> bool:
    """Whether a file was written after another one: by their names, else by their times."""
    by_name = is_newer_by_name(one, other)
    return one.modified > other.modified if by_name is None else by_name


def oldest_first(files: Iterable[Sighting]) -> list[Sighting]:
    """Return files of a group in the order of their names, or else of their times."""
    placed: list[Sighting] = []
    for file in sorted(files, key=lambda file: file.entry.age):
        older = (at for at, other in enumerate(placed, 1) if is_newer(file.entry, other.entry))
        placed.insert(max(older, default=0), file)
    return placed


def arrange(files: Collection[File]) -> list[File]:
    """Return the files of a chain, oldest first, those at their live path last.

    Those that have a turn keep their order.
    """
    placed = sorted((one for one in files if one.turn is not None), key=lambda one: one.turn or 0)
    new = [file for file in files if file.turn is None]
    if _counts_up(files):
        return [*placed, *sorted(new, key=lambda file: (file.is_fresh, file.entry.modified))]
    live = [file for file in (*placed, *new) if not file.is_rotated]
    rotated = [file for file in placed if file.is_rotated]
    # what was known before first: it says where the others belong
    new = sorted(new, key=lambda file: (file.is_fresh, file.entry.age))
    for file in (file for file in new if file.is_rotated):
        older = (at for at, other in enumerate(rotated, 1) if _follows(file, other))
        rotated.insert(max(older, default=0), file)
    return [*rotated, *live]


def _counts_up(files: Iterable[Ordered]) -> bool:
    """Whether a file kept its number although another one came: rotation renames no file then.

    So it is with `rotatelogs -n`: the file with the next number is the newest one.
    """
    numbered = [one for one in files if (place_in_names(one.entry.path) or ("", (0,)))[1][0] < 0]
    kept = any(not one.is_fresh and one.entry.path == one.label for one in numbered)
    return kept and any(one.is_fresh for one in numbered)


def _follows(file: Ordered, other: Ordered) -> bool:
    # what is deleted has no name any more
    has_names = file.unseen_since is None and other.unseen_since is None
    by_name = is_newer_by_name(file.entry, other.entry) if has_names else None
    by_time = (file.entry.modified, file.entry.path) > (other.entry.modified, other.entry.path)
    # a file that is read although it was never seen before comes after those that we know
    comes_after = file.is_fresh and not (other.is_fresh and other.turn is None)
    return by_time or comes_after if by_name is None else by_name or (by_time and comes_after)


def chains_of(groups: Iterable[Collection[str]]) -> Mapping[str, str]:
    """Return for each group the name of its chain: groups that are given together are one chain."""
    chains: dict[str, str] = {}

    def root(group: str) -> str:
        while (above := chains.setdefault(group, group)) != group:
            group = above
        return group

    for together in groups:
        first, *others = sorted(map(root, together))
        chains.update(dict.fromkeys(others, first))
    return {group: root(group) for group in chains}
