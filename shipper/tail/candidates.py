"""Prepares a decision: indexes a scan, chooses which files must be probed, and gathers what is known of a rotation group."""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from shipper.positions import Cursor
from shipper.tail.paths import age, group_of
from shipper.tail.probe import Ask, Sample
from shipper.tail.rules import Candidate, Chain
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Index", "Outlook", "asks", "candidate", "concerned", "kin", "outlook", "with_homes"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The files of a look: all, those at live paths by path, and the inodes of each group.

    `before` is when the look before this one was, in nanoseconds; None for the first one.
    """

    before: int | None = None
    files: Mapping[FileKey, FileEntry] = field(default_factory=dict)
    live: Mapping[str, FileEntry] = field(default_factory=dict)
    inodes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def outlook(
    entries: Iterable[FileEntry], followed: Mapping[FileKey, str], before: int | None
) -> Outlook:
    """Sort out a look; `followed` are the paths of the files that are followed.

    Hard links and symbolic links show one file at several paths; the one that it was followed at stays.
    """
    files: dict[FileKey, FileEntry] = {}
    inodes: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
    for entry in sorted(entries, key=lambda s: (not s.is_live, not s.wanted, s.path)):
        chosen = files.setdefault(entry.key, entry)
        if followed.get(entry.key) == entry.path and chosen.is_live == entry.is_live:
            files[entry.key] = entry
    for entry in files.values():
        inodes[entry.group] += (entry.key.inode,)
    return Outlook(before, files, {s.path: s for s in files.values() if s.is_live}, inodes)


@dataclass(slots=True)
class Index:
    """All cursors by group, those without a file by inode as well, and the tailers by group."""

    cursors: defaultdict[str, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    by_inode: defaultdict[int, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    tailers: defaultdict[str, list[Tailer]] = field(default_factory=lambda: defaultdict(list))

    def add_tailer(self, tailer: Tailer, home: str) -> None:
        """Take up a followed file; `home` is the group it came from, where copies of it may be left.

        A hard link shows it in another one once its first name is gone.
        """
        self.tailers[tailer.entry.group].append(tailer)
        for group in {tailer.entry.group, home}:
            self.cursors[group].append(tailer.cursor)

    def add_known(self, cursor: Cursor, groups: Iterable[str]) -> None:
        """Take up a cursor whose file is not followed."""
        for group in groups:
            self.cursors[group].append(cursor)
        self.by_inode[cursor.identity.inode].append(cursor)

    def known(self, entry: FileEntry) -> list[Cursor]:
        """Return the cursors without a file that a file may belong to by its inode.

        A cursor that knows nothing else is that of a file in which nothing was seen: such an inode may soon be another's,
        so it is none of another group, nor compressed.
        """
        same = self.by_inode[entry.key.inode]
        ours = () if entry.packed is not None else self.cursors[entry.group]
        return [c for c in same if c.offset or c.identity.head_length or c in ours]

    def part(self, cursor: Cursor) -> None:
        """Forget that a file with the cursor's inode may be its file: it was truncated."""
        same = self.by_inode[cursor.identity.inode]
        self.by_inode[cursor.identity.inode] = [c for c in same if c.file != cursor.file]

    def cursors_near(self, entry: FileEntry) -> tuple[Cursor, ...]:
        """Return the cursors that a file may belong to."""
        near = (*self.cursors[entry.group], *self.by_inode[entry.key.inode])
        return tuple({cursor.file: cursor for cursor in near}.values())

    def oldest(self, group: str) -> tuple[int, int, str] | None:
        """Return the age of the oldest rotated file that is followed."""
        rotated = (t.entry for t in self.tailers[group] if not t.entry.is_live)
        return min((age(s.modified, s.path) for s in rotated), default=None)


def asks(
    shown: Outlook,
    tailers: Mapping[FileKey, Tailer],
    passed_over: Container[FileKey],
    index: Callable[[], Index],
    lives: Collection[str],
    from_end: bool,
) -> list[Ask]:
    """Return what is to be glimpsed at: candidates but those `passed_over`, doubtful files, and what is to tell them apart.

    `from_end` says that files never seen begin at their end in this look. A quiet look asks for nothing, and then `index` is not called.
    `lives` tell which group a followed file came from, where a hard link shows it in another one.
    """
    there = [tailer for key, tailer in tailers.items() if key in shown.files]
    fresh = [s for k, s in shown.files.items() if k not in tailers and k not in passed_over]
    fresh += [tailer.entry for tailer in there if tailer.suspect]
    groups = {entry.group for entry in fresh}
    # a candidate may be the copy of any file of its group that was truncated
    others = [t.entry for t in there if t.is_strange or _may_be_original(t, groups, lives)]
    wanted = dict.fromkeys([*fresh, *others])
    if not wanted:
        return []
    near = index().cursors_near
    return [Ask(s, near(s), from_end) for s in wanted]


def _may_be_original(tailer: Tailer, groups: Container[str], lives: Collection[str]) -> bool:
    # a compressed file is not truncated, and to unpack it is dear
    if tailer.entry.packed is not None:
        return False
    return tailer.entry.group in groups or group_of(tailer.label, lives) in groups


def concerned(
    asks: Sequence[Ask],
    tailers: Mapping[FileKey, Tailer],
    unseen: Iterable[Tailer],
    lives: Collection[str],
) -> set[str]:
    """Return the groups of the files that are glimpsed at, and of those that the look did not show."""
    asked = (tailers.get(ask.entry.key) for ask in asks)
    groups = {ask.entry.group for ask in asks}
    for tailer in (*unseen, *(tailer for tailer in asked if tailer is not None)):
        groups |= {tailer.entry.group, group_of(tailer.label, lives)}
    return groups


def with_homes(
    groups: Set[str], tailers: Iterable[Tailer], lives: Collection[str]
) -> frozenset[str]:
    """Return groups that moved during a look, and those that share a file with them."""
    held = frozenset(groups)
    for tailer in tailers if held else ():
        shared = {tailer.entry.group, group_of(tailer.label, lives)}
        if shared & held:
            held |= shared
    return held


def kin(
    group: str, live: Candidate | None, shown: Outlook, index: Index, known: Container[str]
) -> Chain:
    """Return the chain of a group; `live` is the file at its live path, `known` are the ids without a file."""
    cursors = tuple(index.cursors[group])
    inodes = shown.inodes.get(group, ())
    homeless = sorted((c for c in cursors if c.file in known), key=lambda c: c.seen, reverse=True)
    unseen = (t for t in index.tailers[group] if t.entry.key not in shown.files)
    followed = (t.cursor for t in index.tailers[group] if t.entry.is_live)
    return Chain(
        live=live,
        truncated=tuple(c for c in homeless if c.identity.inode in inodes),
        gone=tuple(c for c in homeless if c.identity.inode not in inodes),
        unseen=tuple(t.start if t.is_unread else t.cursor for t in unseen),
        cursors=cursors,
        oldest=index.oldest(group),
        newest=_newest(cursors, shown.before),
        followed=next(followed, None),
    )


def _newest(cursors: Iterable[Cursor], looked: int | None) -> int | None:
    # a backlog may be read long after its successor was written and rotated, but not before we looked last
    times = [] if looked is None else [looked]
    # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
    read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
    times += [max(read)] if read else []
    return min(times, default=None)


def candidate(entry: FileEntry, seen: Sample, original: str | None) -> Candidate:
    """Return a file as it was sighted and glimpsed at; `original` is the id of the file it was noted as a copy of."""
    return Candidate(
        replace(entry, size=seen.size),
        seen.head,
        seen.tails,
        seen.ends,
        original,
        seen.ended,
        seen.is_partial,
        seen.damage,
        seen.last,
        seen.hole,
        seen.begin,
    )
