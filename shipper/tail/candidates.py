"""What a decision on a file that is not followed needs to know: the file as it was probed, and its rotation group.

A rotation group is a live file with the files that it was rotated to.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum, auto

from broker.wire.positions import Cursor
from shipper.tail.identity import Match, fingerprint, has_head, judge
from shipper.tail.paths import age, group_of
from shipper.tail.probe import Sample
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = [
    "Candidate",
    "Index",
    "Known",
    "Note",
    "Presence",
    "Remembered",
    "RotationGroup",
    "one_path_each",
    "rest_of",
]

_CLOCK_SLACK = 20_000_000
"""Nanoseconds that a file's time of change may lie behind the clock: the kernel stamps files by its tick."""


class Presence(Enum):
    """Where a file of a group is that we know."""

    FOLLOWED = auto()
    DELETED = auto()
    """It is followed, held open, and has no name any more."""
    TRUNCATED = auto()
    """It is followed no longer; its inode is there and holds other bytes."""
    GONE = auto()
    """It is followed no longer; its inode is not there."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to decide on, with a sample of it; `copy_of` is the id of the file that it was seen to be a copy of.

    `was_left` says that a file was left as old, began like this one, and has just gone: this may be it, compressed.
    """

    entry: FileEntry
    seen: Sample
    copy_of: str | None = None
    was_left: bool = False

    def has_only_inode_of(self, cursor: Cursor) -> bool:
        """Whether it may be the file of a cursor that knows nothing but an inode; no compressed file is."""
        is_blank = not (cursor.offset or cursor.identity.head_length)
        is_there = cursor.identity.inode == self.entry.key.inode
        return is_blank and is_there and self.entry.packed is None

    @property
    def order(self) -> tuple[bool, tuple[int, int, str]]:
        """What the candidates of a group are sorted by: the live one first, then the oldest."""
        return not self.entry.is_live, age(self.entry.modified, self.entry.path)

    def match(self, cursor: Cursor) -> Match:
        """Return what this file is to a cursor."""
        inode, seen = self.entry.key.inode, self.seen
        same_inode = inode == cursor.identity.inode
        if cursor.file in seen.ended:
            return Match.SAME if same_inode else Match.COPY
        if seen.hole and cursor.offset < seen.begin and (cursor.offset or not same_inode):
            # whatever was read of it stood before its first byte; and all holes look alike
            return Match.OTHER
        tail = seen.tails.get(cursor.file, b"")
        return judge(cursor, inode, seen.size, seen.head, tail)

    def holds(self, cursor: Cursor) -> bool:
        """Whether it has another inode and all bytes that were read of the cursor's file."""
        return self.match(cursor) is Match.COPY

    def is_part_of(self, cursor: Cursor) -> bool:
        """Whether it is shorter than what was read of the cursor's file and begins like it.

        So is a copy where lines were written, and read, between the copy and the truncation.
        """
        if self.seen.damage or self.seen.size >= cursor.offset:
            return False
        return self.copy_of == cursor.file or has_head(cursor, self.seen.head)

    def is_beginning_of(self, live: "Candidate") -> bool:
        """Whether it begins and ends like a part of the live file; either may have grown since."""
        if not live.seen.head.startswith(self.seen.head):
            return False
        # holes that two files begin with are alike, and say nothing of what stands behind them
        hole = min(self.seen.begin, self.seen.size - 1)
        sizes = [n for n in self.seen.ends.keys() & live.seen.ends.keys() if not 0 < n <= hole]
        return self.seen.is_partial or any(self.seen.ends[n] == live.seen.ends[n] for n in sizes)


@dataclass(frozen=True, slots=True)
class Known:
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: Presence


@dataclass(slots=True)
class RotationGroup:
    """What is known of a candidate's group.

    `live` is the file at the live path. `oldest` is the age of the oldest rotated file that is followed, `newest` when
    the group was last read, or last scanned if that is earlier, in nanoseconds; None when there is none.
    """

    live: Candidate | None
    known: Sequence[Known]
    oldest: tuple[int, int, str] | None
    newest: int | None

    def joined_by(self, entry: FileEntry) -> None:
        """Take note that one more file of the group is followed: what is younger is new as well."""
        if not entry.is_live:
            joined = age(entry.modified, entry.path)
            self.oldest = joined if self.oldest is None else min(self.oldest, joined)

    def came_before(self, entry: FileEntry) -> bool:
        """Whether a file that was never read is younger than what is known of the group."""
        if self.oldest is not None and age(entry.modified, entry.path) > self.oldest:
            return True
        return self.newest is not None and entry.modified + _CLOCK_SLACK >= self.newest


@dataclass(frozen=True, slots=True)
class Remembered:
    """A file that is not followed, with the groups that it was seen in; `keep` says that it was only deselected.

    `begun` is where its reading began, None where that is the cursor.
    """

    cursor: Cursor
    groups: Set[str] = frozenset()
    keep: bool = False
    begun: Cursor | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Why a file is not followed: its first `length` bytes have the hash `head`, `copy_of` is the id of its original."""

    entry: FileEntry
    length: int
    head: str
    copy_of: str | None

    @classmethod
    def of(cls, entry: FileEntry, head: bytes = b"", copy_of: str | None = None) -> "Note":
        """Take note of a file that begins with `head`, as far as that is of interest."""
        return cls(entry, len(head), fingerprint(head), copy_of)

    @property
    def is_ignored(self) -> bool:
        """Whether it is not probed until it changes or its original is read no longer; any other is after each scan."""
        return self.entry.packed is not None or self.copy_of is None

    def begins(self, head: bytes) -> bool:
        """Whether a file that begins with `head` may be this one: its inode may be another's, and it may have grown."""
        return len(head) >= self.length and fingerprint(head[: self.length]) == self.head

    def was_old(self, head: bytes) -> bool:
        """Whether it was left as old, and began with exactly this."""
        return self.copy_of is None and 0 < self.length == len(head) and self.begins(head)

    def is_unchanged(self, now: FileEntry | None) -> bool:
        """Whether the file still is as it was when the note was taken."""
        return now is not None and _traits(now) == _traits(self.entry)


def _traits(entry: FileEntry) -> tuple[object, ...]:
    return entry.packed, entry.modified, entry.wanted, entry.is_live


class Index:
    """What is known after a scan, by rotation group; remembered cursors by inode as well.

    `files` are what the scan showed, `remembered` the ids of files that are not followed, `before` is when the scan before
    was. `live` are the candidates at live paths. The files on the inodes of `not_there` were just seen to be others.
    """

    def __init__(
        self, files: Mapping[FileKey, FileEntry], remembered: Container[str], before: int | None
    ) -> None:
        self.live: Mapping[str, Candidate] = {}
        self.not_there: set[str] = set()
        self._files = files
        self._inodes = {(entry.group, key.inode) for key, entry in files.items()}
        self._remembered = remembered
        self._before = before
        self._deleted: dict[str, Tailer] = {}
        self._tailers: defaultdict[str, list[Tailer]] = defaultdict(list)
        self._cursors: defaultdict[str, list[Cursor]] = defaultdict(list)
        self._by_inode: defaultdict[int, list[Cursor]] = defaultdict(list)

    def add_tailer(self, tailer: Tailer, groups: Iterable[str]) -> None:
        """Take up a followed file, with the groups in which copies of it may be left."""
        self.joined_by(tailer)
        if tailer.entry.key not in self._files:
            self._deleted[tailer.file] = tailer
        for group in groups:
            self._cursors[group].append(tailer.cursor)

    def add_remembered(self, known: Remembered, home: str) -> None:
        """Take up a file that is not followed; `home` is the group that it came from."""
        self._by_inode[known.cursor.identity.inode].append(known.cursor)
        for group in {home} | known.groups:
            self._cursors[group].append(known.cursor)

    def joined_by(self, tailer: Tailer) -> None:
        """Take note that one more file is followed."""
        self._tailers[tailer.entry.group].append(tailer)

    def near(self, entry: FileEntry) -> tuple[Cursor, ...]:
        """Return the cursors that a file may belong to."""
        near = (*self._cursors[entry.group], *self._by_inode[entry.key.inode])
        return tuple({cursor.file: cursor for cursor in near}.values())

    def same_inode(self, entry: FileEntry) -> list[Cursor]:
        """Return the remembered cursors that a file may belong to by its inode.

        Where nothing was seen of a file its inode is all that is known, and may be another's soon: then only the
        live file of the same group is taken for it, and a sibling if no other rule fits.
        """
        ours = self._cursors[entry.group] if entry.is_live else ()
        same = (c for c in self._by_inode[entry.key.inode] if c.file not in self.not_there)
        return [c for c in same if c.offset or c.identity.head_length or c in ours]

    def group(self, name: str) -> RotationGroup:
        """Return what is known of a group now."""
        tailers, cursors = self._tailers[name], self._cursors[name]
        known = [self._known(cursor, name) for cursor in cursors]
        # a file that was followed by its hard link in another group says nothing of what was rotated in this one
        ours = (tailer for tailer in tailers if group_of(tailer.label, {name}) == name)
        rotated = (tailer.entry for tailer in ours if not tailer.entry.is_live)
        oldest = min((age(entry.modified, entry.path) for entry in rotated), default=None)
        newest = _newest(cursors, self._before)
        return RotationGroup(self.live.get(name), known, oldest, newest)

    def _known(self, cursor: Cursor, group: str) -> Known:
        if cursor.file in self._remembered:
            is_there = (group, cursor.identity.inode) in self._inodes
            return Known(cursor, Presence.TRUNCATED if is_there else Presence.GONE)
        if deleted := self._deleted.get(cursor.file):
            return Known(deleted.start if deleted.is_unread else cursor, Presence.DELETED)
        return Known(cursor, Presence.FOLLOWED)


def _newest(cursors: Sequence[Cursor], scanned: int | None) -> int | None:
    # a backlog may be read long after its successor was written and rotated, but not before the last scan
    times = [] if scanned is None else [scanned]
    # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
    read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
    times += [max(read)] if read else []
    return min(times, default=None)


def one_path_each(
    entries: Iterable[FileEntry], tailers: Mapping[FileKey, Tailer]
) -> dict[FileKey, FileEntry]:
    """Return each file once: links show it at several paths, of which a live one is best, or that it was followed at."""
    files: dict[FileKey, FileEntry] = {}
    for entry in sorted(
        entries, key=lambda entry: (not entry.is_live, not entry.wanted, entry.path)
    ):
        chosen = files.setdefault(entry.key, entry)
        tailer = tailers.get(entry.key)
        if tailer and tailer.entry.path == entry.path and chosen.is_live == entry.is_live:
            files[entry.key] = entry
    return files


def rest_of(truncated: Tailer, tailers: Iterable[Tailer]) -> FileEntry | None:
    """Return the copy that the rest of a truncated file is read from; None when there is none.

    The copy of a file of which nothing was read is followed as a file of its own, which begins like it.
    """
    begins, group = truncated.beginning, truncated.entry.group
    for tailer in tailers:
        if tailer.file == truncated.file:
            return tailer.entry
        is_copy = truncated.is_unread and tailer.is_unread and tailer.rotated is not None
        begins_so = bool(begins) and tailer.beginning.startswith(begins)
        if is_copy and begins_so and tailer.entry.group == group:
            return tailer.entry
    return None
