"""Decides what a file is that is not followed yet. Pure rules: the catalogue acts on them.

A rotation group is a live file with the files that it was rotated to. "Truncated" and "gone" files are those of the group that
are followed no longer; only a compressed file is damaged. The first row that fits decides:

| candidate                                                                                       | outcome  |
|-------------------------------------------------------------------------------------------------|----------|
| has the inode of a remembered file of which bytes are known, and holds them                     | CONTINUE |
| is at the live path                                                                             | BEGIN    |
| is empty, and not damaged                                                                       | EMPTY    |
| holds all that was read of a truncated or gone file                                             | INHERIT  |
| begins like the live file, and ends like a part of it or (compressed) has no end yet            | COPY     |
| holds what was read of any file of the group, or is shorter than that and begins like it        | COPY     |
| is damaged, and begins like a truncated or gone file                                            | DAMAGED  |
| is damaged without a readable beginning, and the group has a truncated or gone file             | DAMAGED  |
| is damaged, and no byte of it can be read                                                       | EMPTY    |
| is compressed, begins like a truncated or gone file, and has no end yet                         | EMPTY    |
| is shown by a pattern                                                                           | BEGIN    |
| is younger than what is known of the group                                                      | BEGIN    |
| any other                                                                                       | OLD      |

Short files may agree by chance. So many bytes of a beginning must agree, unless the candidate was seen beside its original:

| known file                           | to INHERIT           | to be its COPY       |
|--------------------------------------|----------------------|----------------------|
| truncated: another file on its inode | any                  | any                  |
| gone: its inode is not there         | 64 (compressed: any) | 1,024                |
| deleted: held open without a name    | never                | 64 (compressed: any) |
| followed                             | never                | 1,024                |
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from broker.wire.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Sample, fingerprint, has_head
from shipper.tail.paths import age
from shipper.tail.scan import FileEntry
from shipper.tail.tailer import Tailer

__all__ = [
    "Candidate",
    "FilePresence",
    "Index",
    "Known",
    "Note",
    "RotationGroup",
    "Ruling",
    "Verdict",
    "recognise",
    "rule",
]

_CLOCK_SLACK = 20_000_000
"""Nanoseconds that a file's time of change may lie behind the clock: the kernel stamps files by its tick."""


class Verdict(Enum):
    """What to do with a file that is not followed yet."""

    CONTINUE = auto()
    """It is a remembered file: read on at its cursor."""
    BEGIN = auto()
    """It is new: a new id, from offset 0."""
    INHERIT = auto()
    """It is the copy of a file that was truncated or is gone: takes over its id and cursor, and so its unread rest."""
    COPY = auto()
    """It is a copy of lines that are read elsewhere: leave it as long as they are."""
    OLD = auto()
    """It was rotated before we came to know its group: leave it."""
    EMPTY = auto()
    """It holds nothing, or too little: it may be a copy in the making."""
    DAMAGED = auto()
    """It cannot be decompressed as far as it would have to be."""


class FilePresence(Enum):
    """Where a file of a group is that we know."""

    FOLLOWED = auto()
    DELETED = auto()
    """It is followed, held open, and has no name any more."""
    TRUNCATED = auto()
    """It is followed no longer; its inode is there and holds other bytes."""
    GONE = auto()
    """It is followed no longer; its inode is not there."""

    @property
    def is_followed(self) -> bool:
        """Whether its lines are read where it is."""
        return self in {FilePresence.FOLLOWED, FilePresence.DELETED}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to decide on, with a sample of it; `copy_of` is the id of the file that it was seen to be a copy of."""

    entry: FileEntry
    seen: Sample
    copy_of: str | None = None

    @property
    def order(self) -> tuple[bool, tuple[int, int, str]]:
        """What the candidates of a group are sorted by: the live one first, then the oldest."""
        return not self.entry.is_live, age(self.entry.modified, self.entry.path)

    def is_same(self, cursor: Cursor) -> bool:
        """Whether it has the inode of the cursor's file, and all bytes that were read of it."""
        return cursor.identity.inode == self.entry.key.inode and self._has_all(cursor)

    def holds(self, cursor: Cursor) -> bool:
        """Whether it has another inode and all bytes that were read of the cursor's file."""
        is_elsewhere = cursor.identity.inode != self.entry.key.inode
        return is_elsewhere and cursor.identity.head_length > 0 and self._has_all(cursor)

    def _has_all(self, cursor: Cursor) -> bool:
        # more of the beginning of a deleted file may be known by now than when the sample was taken
        begins_so = not cursor.identity.head_length or has_head(cursor, self.seen.head)
        return begins_so and cursor.file in self.seen.held

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
        # holes that two files begin with are alike, and say nothing of what is behind them
        hole = min(self.seen.begin, self.seen.size - 1)
        sizes = [n for n in self.seen.ends.keys() & live.seen.ends.keys() if not 0 < n <= hole]
        return self.seen.is_partial or any(self.seen.ends[n] == live.seen.ends[n] for n in sizes)


@dataclass(frozen=True, slots=True)
class Known:
    """A file of a group that we know, and where it is."""

    cursor: Cursor
    presence: FilePresence


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


@dataclass(slots=True)
class Index:
    """What a scan and the files known before it are to each other, by rotation group; of files not followed also by inode."""

    there: set[tuple[str, int]] = field(default_factory=set)
    live: dict[str, Candidate] = field(default_factory=dict)
    tailers: defaultdict[str, list[Tailer]] = field(default_factory=lambda: defaultdict(list))
    cursors: defaultdict[str, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    by_inode: defaultdict[int, list[Cursor]] = field(default_factory=lambda: defaultdict(list))
    presence: dict[str, FilePresence] = field(default_factory=dict)

    def add_tailer(self, tailer: Tailer, *, is_deleted: bool) -> None:
        """Add a followed file."""
        group, cursor = tailer.entry.group, tailer.cursor
        if is_deleted:
            self.presence[tailer.file] = FilePresence.DELETED
            cursor = tailer.start if tailer.is_unread else cursor
        self.tailers[group].append(tailer)
        self.cursors[group].append(cursor)

    def add_remembered(self, cursor: Cursor, group: str) -> None:
        """Add a file that is not followed."""
        inode = cursor.identity.inode
        self.cursors[group].append(cursor)
        self.by_inode[inode].append(cursor)
        is_there = (group, inode) in self.there
        self.presence[cursor.file] = FilePresence.TRUNCATED if is_there else FilePresence.GONE

    def near(self, entry: FileEntry) -> tuple[Cursor, ...]:
        """Return the cursors that a file may belong to."""
        near = (*self.cursors[entry.group], *self.by_inode[entry.key.inode])
        return tuple({cursor.file: cursor for cursor in near}.values())

    def same_inode(self, entry: FileEntry) -> list[Cursor]:
        """Return the remembered cursors that a file may belong to by its inode, which alone may be another file's soon."""
        same = self.by_inode[entry.key.inode]
        return [c for c in same if c.offset or c.identity.head_length]

    def group(self, name: str, scanned: int | None) -> RotationGroup:
        """Return what is known of a group now; `scanned` is when the scan before was."""
        cursors, entries = self.cursors[name], [tailer.entry for tailer in self.tailers[name]]
        known = [Known(c, self.presence.get(c.file, FilePresence.FOLLOWED)) for c in cursors]
        rotated = (age(entry.modified, entry.path) for entry in entries if not entry.is_live)
        newest = _newest(cursors, scanned)
        return RotationGroup(self.live.get(name), known, min(rotated, default=None), newest)


def _newest(cursors: Sequence[Cursor], scanned: int | None) -> int | None:
    # a backlog may be read long after its successor was written and rotated, but not before the last scan
    times = [] if scanned is None else [scanned]
    # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
    read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
    times += [max(read)] if read else []
    return min(times, default=None)


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
        """Whether it is not sampled until it changes or its original is read no longer; any other is after each scan."""
        return self.entry.packed is not None or self.copy_of is None

    def begins(self, head: bytes) -> bool:
        """Whether a file that begins with `head` may be this one: its inode may be another's, and it may have grown."""
        return len(head) >= self.length and fingerprint(head[: self.length]) == self.head

    def is_unchanged(self, now: FileEntry | None) -> bool:
        """Whether the file still is as it was when the note was taken."""
        return now is not None and _traits(now) == _traits(self.entry)


def _traits(entry: FileEntry) -> tuple[object, ...]:
    return entry.packed, entry.modified, entry.wanted, entry.is_live


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, with the cursor to read on from, or of the file that it is a copy of; None: of the live file.

    `others` are cursors of agents that found the same file and read nothing of it: a copy would be taken for theirs.
    """

    verdict: Verdict
    cursor: Cursor | None = None
    others: tuple[Cursor, ...] = ()


def recognise(candidate: Candidate, cursors: Iterable[Cursor]) -> Ruling | None:
    """Decide whether a file is that of a remembered cursor with the same inode; None when it is not.

    All files of a group must have been asked this before `rule` is asked of any.
    """
    same = [cursor for cursor in cursors if candidate.is_same(cursor)]
    if not same:
        return None
    best = max(same, key=lambda cursor: (cursor.offset, cursor.seen))
    others = (c for c in same if c.path == best.path and not c.offset and c != best)
    return Ruling(Verdict.CONTINUE, best, tuple(others))


def rule(candidate: Candidate, group: RotationGroup) -> Ruling:
    """Decide on a file that kept no inode that we know: the first row of the table that fits."""
    if candidate.entry.is_live:
        return Ruling(Verdict.BEGIN)
    if not candidate.seen.size and not candidate.seen.damage:
        return Ruling(Verdict.EMPTY)
    if heir_of := [known for known in group.known if _may_inherit(candidate, known)]:
        return Ruling(Verdict.INHERIT, _best(candidate, heir_of))
    if group.live is not None and candidate.is_beginning_of(group.live):
        return Ruling(Verdict.COPY)
    copy_of = next((known for known in group.known if _is_copy(candidate, known)), None)
    if copy_of is not None:
        return Ruling(Verdict.COPY, copy_of.cursor)
    return Ruling(_rule_unknown(candidate, group))


def _rule_unknown(candidate: Candidate, group: RotationGroup) -> Verdict:
    entry, seen = candidate.entry, candidate.seen
    left = [known.cursor for known in group.known if not known.presence.is_followed]
    begins_alike = any(has_head(cursor, seen.head) for cursor in left)
    if seen.damage and (begins_alike or (left and not seen.head)):
        return Verdict.DAMAGED
    if not seen.size or (seen.is_partial and begins_alike):
        return Verdict.EMPTY
    is_new = entry.wanted or group.came_before(entry)
    return Verdict.BEGIN if is_new else Verdict.OLD


def _may_inherit(candidate: Candidate, known: Known) -> bool:
    cursor, is_original = known.cursor, candidate.copy_of == known.cursor.file
    if known.presence.is_followed:
        return False
    if is_original and not cursor.offset:
        return True
    some = TAIL_BYTES if candidate.entry.packed is None else 0
    least = 0 if is_original or known.presence is FilePresence.TRUNCATED else some
    return cursor.identity.head_length >= least and candidate.holds(cursor)


def _best(candidate: Candidate, heir_of: Sequence[Known]) -> Cursor:
    def likeliness(known: Known) -> tuple[bool, int, int]:
        cursor = known.cursor
        is_original = candidate.copy_of == cursor.file
        if candidate.entry.packed is None:
            return is_original, known.presence is FilePresence.TRUNCATED, cursor.seen
        return is_original, cursor.offset, cursor.seen

    return max(heir_of, key=likeliness).cursor


def _is_copy(candidate: Candidate, known: Known) -> bool:
    cursor = known.cursor
    least = HEAD_BYTES
    if candidate.copy_of == cursor.file or known.presence is FilePresence.TRUNCATED:
        least = 0
    elif known.presence is FilePresence.DELETED:
        least = TAIL_BYTES if candidate.entry.packed is None else 0
    if cursor.identity.head_length < least:
        return False
    return candidate.is_part_of(cursor) or candidate.holds(cursor)
