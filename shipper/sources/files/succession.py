"""Arranges the files of one chain in the order in which they were written, and are read.

    app.log was A, then B, now C   →   A, B, C, whatever the names of A and B are now

Pure functions of files that were seen. An order that was given once is kept: a file that came to a
path later follows the one that was there before. Names and times decide only about new files.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence

from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import FileEntry, Sample
from shipper.sources.files.paths import rotation_key


def is_newer_by_name(one: FileEntry, other: FileEntry) -> bool | None:
    """Whether a file was rotated away after another one, by their names; None if unknown."""
    place, before = rotation_key(one.path), rotation_key(other.path)
    if place is None or before is None or place[0] != before[0] or place[1] == before[1]:
        return None
    return place[1] > before[1]


def is_newer(one: FileEntry, other: FileEntry) -> bool:
    """Whether a file was written after another one: by their names, else by their times."""
    by_name = is_newer_by_name(one, other)
    return one.modified > other.modified if by_name is None else by_name


def is_dated_before(archive: FileEntry, other: FileEntry) -> bool:
    """Whether a compressed file was rotated before another one, or was it, by the dates in names.

    The kubelet gives a compressed file the time at which it was compressed, not that of its lines.
    """
    place, known = rotation_key(archive.path), rotation_key(other.path)
    if place is None or known is None or "@" not in place[0]:  # numbers have no date
        return False
    return known[0] == place[0] and known[1] >= place[1]


def oldest_first(files: Iterable[Sample]) -> list[Sample]:
    """Return sampled files of a group in the order of their names, or else of their times."""
    by_age = sorted(files, key=lambda file: file.entry.age)
    keys = {file.entry.path: rotation_key(file.entry.path) for file in by_age}
    if len({key and key[0] for key in keys.values()}) <= 1:  # there may be thousands

        def rank(file: Sample) -> tuple[tuple[int, ...], int]:
            key = keys[file.entry.path]
            return key[1] if key else (), file.entry.modified

        by_age.reverse()  # no file is placed behind one that was written at the same time
        return sorted(by_age, key=rank)
    placed: list[Sample] = []
    for file in by_age:
        newer = (is_newer(file.entry, other.entry) for other in reversed(placed))
        placed.insert(_count_to_first(newer, len(placed)), file)
    return placed


def _count_to_first(is_behind: Iterable[bool], count: int) -> int:
    """Return how many files a file comes behind, if it is asked of the last of them first."""
    return next((count - at for at, found in enumerate(is_behind) if found), 0)


def arrange(files: Collection[FollowedFile], ranks: Mapping[str, int]) -> list[FollowedFile]:
    """Return the files of a chain, oldest first, those at their live path last.

    Files that have a rank, by id, keep their order.
    """
    ranked = sorted((f for f in files if f.file in ranks), key=lambda f: ranks[f.file])
    new = [file for file in files if file.file not in ranks]
    if _counts_up(files, ranks):
        new.sort(key=lambda f: (f.progress.is_fresh, f.entry.modified, _number_of(f)))
        return [*ranked, *new]
    last = {file.file for file in files if not (file.is_rotated or _is_overtaken(file, files))}
    live = [file for file in (*ranked, *new) if file.file in last]
    rotated = [file for file in ranked if file.file not in last]
    # files that were known before first: their places say where the others belong
    new = sorted(new, key=lambda file: (file.progress.is_fresh, file.entry.age))
    for file in (file for file in new if file.file not in last):
        follows = (_follows(file, other, ranks) for other in reversed(rotated))
        rotated.insert(_count_to_first(follows, len(rotated)), file)
    return [*rotated, *live]


def _is_overtaken(file: FollowedFile, others: Iterable[FollowedFile]) -> bool:
    """Whether it is a link that stayed at the first of several dated files; others are later."""
    if file.entry.real == file.entry.path:
        return False
    place = rotation_key(file.entry.real)
    if place is None or "@" not in place[0]:
        return False
    places = (rotation_key(other.entry.real) for other in others)
    return any(one[0] == place[0] and one[1] > place[1] for one in places if one)


def _counts_up(files: Iterable[FollowedFile], ranks: Mapping[str, int]) -> bool:
    """Whether a file kept its name although one with a number came: rotation renames no file then.

    `rotatelogs -n` does so: the file with the next number is the newest one.
    """
    seen = [file for file in files if file.unseen_since is None]
    kept = sorted((f for f in seen if f.path == f.progress.label), key=_number_of)
    if any(_number_of(file) for file in seen if file.path != file.progress.label):
        kept = [file for file in kept if file.file in ranks]  # here, rotation renames files
    numbers = list(map(_number_of, kept))
    for file, number in zip(kept, numbers, strict=True):
        if file.is_rotated:
            continue
        path = file.entry.group
        above = [f for f in kept[bisect_right(numbers, number) :] if f.path.startswith(path)]
        if above and _is_before(file, above, ranks):
            return True
    return False


def _is_before(file: FollowedFile, above: Sequence[FollowedFile], ranks: Mapping[str, int]) -> bool:
    """Whether a file was written before those with higher numbers, the lowest one first."""
    other, modified = above[0], file.entry.modified
    if file.file in ranks:
        known = ranks.get(other.file)
        return modified <= other.entry.modified if known is None else ranks[file.file] < known
    # one that was renamed may be written late, but was made before the file that is live now
    ages = [one.born or one.entry.modified for one in (file, *above)]
    return file.entry.size > 0 and modified < other.entry.modified and ages == sorted(ages)


def _number_of(file: FollowedFile) -> int:
    """Return the number in a file's name; 0 if there is none, or it was compressed since."""
    key = rotation_key(file.path) if file.entry.compression is None else None
    return max(0, -key[1][0]) if key else 0


def _follows(file: FollowedFile, other: FollowedFile, ranks: Mapping[str, int]) -> bool:
    # a deleted file has no name any more
    has_names = file.unseen_since is None and other.unseen_since is None
    by_name = is_newer_by_name(file.entry, other.entry) if has_names else None
    by_time = (file.entry.modified, file.entry.path) > (other.entry.modified, other.entry.path)
    if not has_names:  # of those written in one tick of the clock the order of coming counts
        by_time = file.entry.modified >= other.entry.modified
    # a file that is read although it was never seen before comes after those that we know
    comes_after = file.progress.is_fresh and not (
        other.progress.is_fresh and other.file not in ranks
    )
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
