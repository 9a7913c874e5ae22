"""The file catalogue: which files are followed, which are only remembered, and what every newly found file is.

A file is followed by a tailer (by device and inode), remembered by its cursor (by file id) when it is followed no longer,
or left by a note (by device and inode) as the copy of another one, as older than our time, or as useless. Memory only;
touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.wire.positions import Cursor, forgettable
from shipper.tail.identity import Ask, Sample, identify, is_inside_line
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection, group_of
from shipper.tail.rules import (
    Candidate,
    Index,
    Note,
    Ruling,
    Verdict,
    recognise,
    rule,
)
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Catalogue"]

_GROWTH = 256
"""By how many files what is remembered may grow until what is long gone is forgotten."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A file that is not followed; `begun` is where its reading began."""

    cursor: Cursor
    begun: Cursor | None = None


class Catalogue:
    """The files that one follower knows; `chains` holds its tailers by group, oldest first.

    `lives` are the live paths whose rotated siblings are looked for.
    """

    def __init__(
        self, selection: Selection, known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.tailers: dict[FileKey, Tailer] = {}
        self.chains: dict[str, list[Tailer]] = {}
        self.lives: set[str] = set()
        self._new_id = new_id
        self._remembered = {cursor.file: _Remembered(cursor) for cursor in known}
        self._notes: dict[FileKey, Note] = {}
        self._files: dict[FileKey, FileEntry] = {}
        self._index = Index()
        self._held: Collection[str] = ()
        self._scanned: int | None = None
        self._sorted = 0
        self._before: Selection | None = None
        self._select(selection)

    # what a scan showed

    def scanned(
        self, entries: Iterable[FileEntry], now: int, is_open: Callable[[FileKey], bool]
    ) -> tuple[list[Ask], list[Notice]]:
        """Take note of a scan; return which files must be sampled before `settle`, and what there is to say.

        The inode of a file that is not open may have been given to another one.
        """
        self._files = _one_path_each(entries, self.tailers)
        self._held = ()
        self.lives |= {entry.path for entry in self._files.values() if entry.wanted}
        notices = []
        for key, tailer in list(self.tailers.items()):
            entry, before = self._files.get(key), tailer.entry
            if entry is None:
                continue
            if entry.size and not (entry.is_live or tailer.beginning):
                # nothing but its inode is known, which may be another file's
                self.leave(tailer)
                continue
            tailer.scanned(entry, now)
            tailer.suspect |= entry.differs(before) and not is_open(key)
            if entry.path != before.path:
                text = f"is now {entry.path}"
                notices.append(Notice(NoticeKind.ROTATED, before.path, text))
        return self._asks(is_open), notices

    def concerned(self, asks: Iterable[Ask]) -> set[str]:
        """Return the groups of which something is to be decided after this scan."""
        unseen = {tailer.entry.group for tailer in self.unseen()}
        return unseen | {ask.entry.group for ask in asks}

    def hold(self, groups: Collection[str]) -> None:
        """Decide nothing about these groups, of which files moved during the scan."""
        self._held = groups

    def unseen(self) -> list[Tailer]:
        """Return the followed files that the last scan did not show."""
        unseen = (t for key, t in self.tailers.items() if key not in self._files)
        return [tailer for tailer in unseen if tailer.entry.group not in self._held]

    def leave(self, tailer: Tailer) -> None:
        """Stop following a file; its cursor is remembered, should it come back, unless nothing but an inode is known of it."""
        del self.tailers[tailer.entry.key]
        start, cursor = tailer.start, tailer.start if tailer.is_unread else tailer.cursor
        if tailer.beginning:
            self._remembered[tailer.file] = _Remembered(cursor, start)

    def settle(
        self, samples: Mapping[FileKey, Sample], now: int, stored: Callable[[str], int]
    ) -> list[Notice]:
        """Decide what the files that were sampled are, and follow those that are to be followed.

        `stored` returns up to which byte a file is stored, by id; 0 once its position is forgotten.
        """
        found = [self._candidate(key, seen) for key, seen in samples.items()]
        found = [candidate for candidate in found if candidate.entry.group not in self._held]
        truncated = self._check_followed(found, now)
        notices = self._settle_groups(found, truncated, now) if found else []
        notices += [self._truncated_notice(tailer) for tailer in truncated]
        self._before = None
        self._index = Index()  # what was sampled would take a kilobyte for each file
        if not self._held:  # or it would be their cursors that seem to be without a file
            there = self._files.keys() | self.tailers.keys()
            self._notes = {key: note for key, note in self._notes.items() if key in there}
            self._scanned = now  # what is older, and not known by now, was there before us
            self._sort_out(now, stored)
        self.order()
        return notices

    # what is to be followed

    def retarget(self, selection: Selection) -> None:
        """Follow another selection: forget nothing, but let go of the files of which it shows no part."""
        self._before = self._selection
        for tailer in list(self.tailers.values()):
            if not selection.covers(tailer.entry.path, tailer.entry.group):
                self.leave(tailer)
        for entry in self.passed_over():
            del self._notes[entry.key]
        self._select(selection)

    def turn_to(self, selection: Selection, known: Cursor) -> None:
        """Follow another selection, and know nothing of its files but this cursor."""
        self._remembered = {known.file: _Remembered(known)}
        self.lives.clear()
        self.tailers.clear()
        self._select(selection)

    def rewind(self, cursors: Mapping[str, Cursor], now: int) -> bool:
        """Read every followed file on from its cursor, or from where it was begun; remember no other cursors but these.

        Returns False, and does nothing, where one is of a file that is not known.
        """
        followed = {tailer.file for tailer in self.tailers.values()}
        known = followed | self._remembered.keys()
        if any(cursor.offset and cursor.file not in known for cursor in cursors.values()):
            return False
        for key, tailer in self.tailers.items():
            cursor = cursors.get(tailer.file, tailer.start)
            if not tailer.is_at(cursor):
                self.tailers[key] = tailer.rewound(cursor, now)
        left = (cursor for file, cursor in cursors.items() if file not in followed)
        self._remembered = {cursor.file: _Remembered(cursor) for cursor in left}
        self.order()
        return True

    def order(self) -> None:
        """Sort the chains, oldest first."""
        self.chains = {}
        for tailer in self.tailers.values():
            self.chains.setdefault(tailer.entry.group, []).append(tailer)
        for tailers in self.chains.values():
            tailers.sort(key=lambda tailer: tailer.age)

    def passed_over(self) -> list[FileEntry]:
        """Return the files that patterns show and that are left, since they were not written for too long."""
        notes = self._notes.values()
        return [note.entry for note in notes if note.is_ignored and note.entry.wanted]

    def _select(self, selection: Selection) -> None:
        self._selection = selection
        paths = {*self.lives, *(known.cursor.path for known in self._remembered.values())}
        self.lives = {path for path in paths if selection.shows(path)}
        self.order()

    # which files must be sampled

    def _asks(self, is_open: Callable[[FileKey], bool]) -> list[Ask]:
        files, tailers, ignored = self._files, self.tailers, self._ignored(is_open)
        there = [tailer for key, tailer in tailers.items() if key in files]
        fresh = [e for key, e in files.items() if key not in tailers and key not in ignored]
        fresh += [tailer.entry for tailer in there if tailer.suspect]
        groups = {entry.group for entry in fresh}
        # a candidate may be the copy of any file of its group that was truncated, as no compressed one is
        known = [t.entry for t in there if t.entry.group in groups and t.entry.packed is None]
        known += [t.entry for t in there if t.is_strange]
        if not fresh and not known:
            return []
        is_first = self._scanned is None or self._before is not None
        from_end = self._selection.from_end and is_first
        near = self._new_index().near
        asked = dict.fromkeys([*fresh, *known])
        return [Ask(entry, near(entry), from_end) for entry in asked]

    def _ignored(self, is_open: Callable[[FileKey], bool]) -> set[FileKey]:
        # a file that has just gone may have been truncated before; the next scan knows
        are_read = {
            tailer.file
            for key, tailer in self.tailers.items()
            if not tailer.suspect
            and (key in self._files or (tailer.unseen_since is not None and is_open(key)))
        }
        notes = ((k, n) for k, n in self._notes.items() if n.is_unchanged(self._files.get(k)))
        return {k for k, n in notes if n.is_ignored and n.copy_of in {None, *are_read}}

    def _new_index(self) -> Index:
        index = Index({(entry.group, key.inode) for key, entry in self._files.items()})
        for key, tailer in self.tailers.items():
            index.add_tailer(tailer, is_deleted=key not in self._files)
        for known in self._remembered.values():
            index.add_remembered(known.cursor, group_of(known.cursor.path, self.lives))
        return index

    # what the sampled files are

    def _candidate(self, key: FileKey, seen: Sample) -> Candidate:
        note = self._notes.get(key)
        copy_of = note.copy_of if note and note.begins(seen.head) else None
        return Candidate(replace(self._files[key], size=seen.size), seen, copy_of)

    def _check_followed(self, found: Iterable[Candidate], now: int) -> list[Tailer]:
        # stop to follow, and return, those that were truncated or written anew
        followed = [c for c in found if c.entry.key in self.tailers]
        truncated = [self.tailers[c.entry.key] for c in followed if not self._is_same(c, now)]
        for tailer in truncated:
            self.leave(tailer)
        return truncated

    def _is_same(self, candidate: Candidate, now: int) -> bool:
        tailer, seen = self.tailers[candidate.entry.key], candidate.seen
        moved = tailer.is_unread and 0 < tailer.offset < seen.begin
        same = candidate.is_same(tailer.cursor) and seen.head.startswith(tailer.beginning)
        if same and not moved:
            tailer.recognised(seen, now)
        return same and not moved

    def _settle_groups(
        self, found: Iterable[Candidate], truncated: Iterable[Tailer], now: int
    ) -> list[Notice]:
        notices = []
        groups = defaultdict(list)
        self._index = self._new_index()
        self._index.live = {c.entry.path: c for c in found if c.entry.is_live}
        for tailer in truncated:  # the files on their inodes are others
            same = self._index.by_inode[tailer.entry.key.inode]
            same[:] = [cursor for cursor in same if cursor.file != tailer.file]
        for candidate in found:
            if known := self.tailers.get(candidate.entry.key):
                notices += self._skip_hole(known, candidate)
            else:
                groups[candidate.entry.group].append(candidate)
        for name, candidates in groups.items():
            notices += self._settle_group(name, candidates, now)
        return notices

    def _settle_group(self, name: str, found: Iterable[Candidate], now: int) -> list[Notice]:
        notices: list[Notice] = []
        rest = []
        for each in sorted(found, key=lambda candidate: candidate.order):
            if ruling := recognise(each, self._index.same_inode(each.entry)):
                notices += self._act(each, ruling, now)
            else:
                rest.append(each)
        group = self._index.group(name, self._scanned)
        # what is new in a group that we know comes after lines that we shipped, or would have
        is_known = bool(group.known) or (self._before is not None and self._before.shows(name))
        for each in rest:
            if is_known:
                each = replace(each, seen=replace(each.seen, last=(0, b"")))
            notices += self._act(each, rule(each, group), now)
            if each.entry.key in self.tailers:
                group.joined_by(each.entry)
        return notices

    def _act(self, candidate: Candidate, ruling: Ruling, now: int) -> list[Notice]:
        entry, seen = candidate.entry, candidate.seen
        self._notes.pop(entry.key, None)
        match ruling.verdict:
            case Verdict.CONTINUE | Verdict.INHERIT if ruling.cursor is not None:
                for same in ruling.others:
                    self._remembered.pop(same.file, None)
                    self._index.presence.pop(same.file, None)
                return self._go_on(candidate, ruling.cursor, now)
            case Verdict.BEGIN:
                return self._begin(candidate, now)
            case Verdict.COPY:
                self._note_copy(candidate, ruling.cursor)
            case Verdict.OLD:
                self._note(entry, seen.head)
            case Verdict.DAMAGED:
                self._note(entry)
                reached = len(seen.head) and entry.size
                text = f"is damaged behind byte {reached} ({seen.damage}): what was not read before is lost"
                return [Notice(NoticeKind.DAMAGED, entry.path, text)]
            case Verdict.EMPTY if entry.packed is not None:
                self._note(entry)
            case _:
                pass  # an empty sibling is sampled again
        return []

    def _go_on(self, candidate: Candidate, cursor: Cursor, now: int) -> list[Notice]:
        if (known := self._remembered.pop(cursor.file, None)) is None:
            return []  # another copy was first
        self._index.presence.pop(cursor.file, None)
        entry, seen = candidate.entry, candidate.seen
        in_line = seen.held.get(cursor.file, False)
        tailer = Tailer(cursor, entry, seen.head, now, in_line=in_line, begun=known.begun)
        return self._follow(tailer, candidate, f"goes on at byte {cursor.offset}")

    def _begin(self, candidate: Candidate, now: int) -> list[Notice]:
        entry, seen = candidate.entry, candidate.seen
        if self._selection.is_too_old(entry.modified, now):
            self._note(entry)
            text = "was not written for longer than --ignore-older; it is followed once it is"
            return [Notice(NoticeKind.AGED, entry.path, text)]
        label = entry.path if entry.wanted else entry.group
        offset, tail = seen.last
        identity = identify(entry.key.inode, seen.head[:offset], tail)
        cursor = Cursor(self._new_id(), label, offset, identity, now)
        tailer = Tailer(cursor, entry, seen.head, now, in_line=is_inside_line(tail))
        place = f"byte {offset}, behind its last line" if offset else "its beginning"
        return self._follow(tailer, candidate, f"is followed from {place}")

    def _follow(self, tailer: Tailer, candidate: Candidate, text: str) -> list[Notice]:
        entry = tailer.entry
        self.tailers[entry.key] = tailer
        self._index.tailers[entry.group].append(tailer)
        return self._skip_hole(tailer, candidate) or [Notice(NoticeKind.FOUND, entry.path, text)]

    def _skip_hole(self, tailer: Tailer, candidate: Candidate) -> list[Notice]:
        if tailer.offset or not (start := candidate.seen.begin):
            return []
        tailer.skip_hole(start)
        text = f"begins with a hole of {start} bytes: its writer kept its offset when the file was truncated"
        return [Notice(NoticeKind.FOUND, tailer.entry.path, f"{text}; it is followed from there")]

    def _note_copy(self, candidate: Candidate, cursor: Cursor | None) -> None:
        entry, original = candidate.entry, cursor.file if cursor else None
        if cursor is None and (live := self._index.live.get(entry.group)):
            tailer = self.tailers.get(live.entry.key)
            original = tailer.file if tailer else None
        if entry.packed is None and candidate.copy_of is not None:
            original = candidate.copy_of  # which may have been truncated since
        if original is not None:
            self._note(entry, candidate.seen.head, original)

    def _note(self, entry: FileEntry, head: bytes = b"", copy_of: str | None = None) -> None:
        self._notes[entry.key] = Note.of(entry, head, copy_of)

    # what is followed no longer

    def _truncated_notice(self, tailer: Tailer) -> Notice:
        text, lost = "was truncated or written anew", tailer.unread
        if copy := next(filter(tailer.is_read_on_in, self.tailers.values()), None):
            text, lost = f"was truncated; its rest is read from {copy.entry.path}", 0
        else:
            text += f"; {lost} bytes were seen in it and not read"
        return Notice(NoticeKind.TRUNCATED, tailer.entry.path, text, lost)

    def _sort_out(self, now: int, stored: Callable[[str], int]) -> None:
        # forget what is long gone, if much has gathered; what has a position may have to be gone back to
        remembered = self._remembered
        if len(remembered) + len(self.lives) <= self._sorted + _GROWTH:
            return
        gone = (known.cursor for known in remembered.values() if not stored(known.cursor.file))
        for cursor in forgettable(gone, now):
            del remembered[cursor.file]
        there = {entry.path for entry in self._files.values() if entry.wanted}
        there |= {tailer.entry.group for tailer in self.tailers.values()}
        self.lives &= there | {known.cursor.path for known in remembered.values()}
        self._sorted = len(remembered) + len(self.lives)


def _one_path_each(
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
