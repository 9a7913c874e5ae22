"""The file catalogue: which files are followed, which are only remembered, and what every newly found file is.

A file is followed by a tailer (by device and inode), remembered by its cursor (by file id) when it is followed no longer,
or left by a note (by device and inode) as the copy of another one, as older than our time, or as useless. Memory only;
touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import chain

from broker.wire.positions import Cursor, forgettable
from shipper.tail.candidates import Candidate, Index, Note, Remembered, one_path_each, rest_of
from shipper.tail.identity import Match, identify
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection, group_of
from shipper.tail.probe import Ask, Sample
from shipper.tail.rules import Ruling, Verdict, content_start, recognise, rule
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Catalogue"]

_GROWTH = 256
"""By how many files what is remembered may grow until what is long gone is forgotten."""


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
        self._remembered = {cursor.file: Remembered(cursor) for cursor in known}
        self._notes: dict[FileKey, Note] = {}
        self._ignored: set[FileKey] = set()
        self._left: list[Note] = []
        self._moved: dict[int, int] = {}
        self._files: dict[FileKey, FileEntry] = {}
        self._linked: dict[FileKey, set[str]] = {}
        self._index = Index({}, {}, None)
        self._held: Set[str] = frozenset()
        self._scanned: int | None = None
        self._sorted = 0
        self._before: Selection | None = None
        self._select(selection)

    def scanned(
        self, entries: Iterable[FileEntry], now: int, is_open: Callable[[FileKey], bool]
    ) -> tuple[list[Ask], list[Notice]]:
        """Take note of a scan; return which files must be probed before `settle`, and what there is to say.

        The inode of a file that is not open may have been given to another one.
        """
        shown = list(entries)
        self._files = one_path_each(shown, self.tailers)
        for other in shown:
            if other.group != self._files[other.key].group:
                self._linked.setdefault(other.key, set()).add(other.group)
        self._held = frozenset()
        self.lives |= {entry.path for entry in self._files.values() if entry.wanted}
        notices = []
        for key, tailer in list(self.tailers.items()):
            entry, before = self._files.get(key), tailer.entry
            if entry is None:
                continue
            if entry.size and not (entry.is_live or tailer.beginning):
                # nothing but its inode is known, which may be another file's
                self._remember(tailer)
                continue
            tailer.scanned(entry, now)
            tailer.suspect |= entry.differs(before) and not is_open(key)
            if entry.path != before.path:
                text = f"is now {entry.path}"
                notices.append(Notice(NoticeKind.ROTATED, before.path, text))
        self._heed_notes(is_open)
        return self._asks(), notices

    def concerned(self, asks: Sequence[Ask]) -> set[str]:
        """Return the groups of which something is to be decided after this scan."""
        asked = [self.tailers[ask.entry.key] for ask in asks if ask.entry.key in self.tailers]
        groups = {ask.entry.group for ask in asks}
        return groups.union(*(self._groups(tailer) for tailer in (*self.unseen(), *asked)))

    def hold(self, groups: Set[str]) -> None:
        """Decide nothing about these groups, of which files moved during the scan, nor about those that share a file."""
        held = set(groups)
        for tailer in self.tailers.values() if groups else ():
            if held & (shared := self._groups(tailer)):
                held |= shared
        self._held = held

    def settle(
        self, samples: Mapping[FileKey, Sample], now: int, stored: Callable[[str], int]
    ) -> list[Notice]:
        """Decide what the files that were probed are, and follow those that are to be followed.

        `stored` returns up to which byte a file is stored, by id; 0 once its position is forgotten.
        """
        if not self._held:
            there = self._files.keys() | self.tailers.keys()
            inodes = {key.inode for key in self._files}
            self._notes = {key: note for key, note in self._notes.items() if key in there}
            self._linked = {key: groups for key, groups in self._linked.items() if key in there}
            self._moved = {inode: n for inode, n in self._moved.items() if inode in inodes}
        found = [self._candidate(key, sample) for key, sample in samples.items()]
        found = [candidate for candidate in found if candidate.entry.group not in self._held]
        truncated = self._check_followed(found) if found else []
        notices = self._settle_groups(found, now)
        notices += [self._truncated_notice(tailer) for tailer in truncated]
        for tailer in truncated:
            if tailer.is_unread:  # it has but an inode to be known by, which is another file's
                self._remembered.pop(tailer.file, None)
        self._before = None
        self._index = Index({}, {}, None)  # what was probed would take a kilobyte for each file
        if not self._held:  # or it would be their cursors that seem to be without a file
            self._scanned = now  # what is older, and not known by now, was there before us
            self._sort_out(now, stored)
        self.order()
        return notices

    def retarget(self, selection: Selection) -> None:
        """Follow another selection: forget nothing, but let go of the files of which it shows no part."""
        self._before = self._selection
        for tailer in list(self.tailers.values()):
            if not selection.covers(tailer.entry.path, tailer.entry.group):
                self._remember(tailer, keep=True)
        for entry in self.passed_over():
            del self._notes[entry.key]
        self._select(selection)

    def turn_to(self, selection: Selection, known: Cursor) -> None:
        """Follow another selection, and know nothing of its files but this cursor."""
        self._remembered = {known.file: Remembered(known)}
        self.lives.clear()
        self.tailers.clear()
        self._select(selection)

    def files(self) -> set[str]:
        """Return the ids of all files that are followed or remembered."""
        return {tailer.file for tailer in self.tailers.values()} | self._remembered.keys()

    def rewind(self, cursors: Mapping[str, Cursor], moved: Mapping[FileKey, Tailer | None]) -> None:
        """Remember these cursors and no others; `moved` are the followed files as they are read on, None where one is lost."""
        for key, tailer in moved.items():
            if tailer is None:
                del self.tailers[key]
            else:
                self.tailers[key] = tailer
        followed = {tailer.file for tailer in self.tailers.values()}
        self._remembered = {
            file: replace(self._remembered.get(file, Remembered(cursor)), cursor=cursor, begun=None)
            for file, cursor in cursors.items()
            if file not in followed
        }
        self.order()

    def leave(self, tailer: Tailer) -> None:
        """Stop following a file; its cursor is remembered, should it come back."""
        self._remember(tailer)
        if tailer.is_unread and not tailer.beginning:
            del self._remembered[tailer.file]  # its inode, soon another's, is all that is known

    def renew(self, tailer: Tailer, head: bytes, modified: int, now: int) -> list[Notice]:
        """Follow what a file was written anew with before it was deleted: it is open still, though at no path."""
        entry = replace(tailer.entry, size=0)
        fresh = Tailer(self._new_cursor(entry, tailer.label, now), entry, head, b"", now)
        fresh.unseen(now, modified)
        self.tailers[entry.key] = fresh
        text = "was written anew before it was deleted; that is read"
        return [Notice(NoticeKind.FOUND, entry.path, text)]

    def order(self) -> None:
        """Sort the chains, oldest first."""
        self.chains = {}
        for tailer in self.tailers.values():
            self.chains.setdefault(tailer.entry.group, []).append(tailer)
        for tailers in self.chains.values():
            tailers.sort(key=lambda tailer: tailer.age)

    def unseen(self) -> list[Tailer]:
        """Return the followed files that the last scan did not show."""
        unseen = (t for key, t in self.tailers.items() if key not in self._files)
        return [tailer for tailer in unseen if tailer.entry.group not in self._held]

    def passed_over(self) -> list[FileEntry]:
        """Return the files that patterns show and that are left, since they were not written for too long."""
        notes = self._notes.values()
        return [note.entry for note in notes if note.is_ignored and note.entry.wanted]

    def _select(self, selection: Selection) -> None:
        self._selection = selection
        paths = {*self.lives, *(known.cursor.path for known in self._remembered.values())}
        self.lives = {path for path in paths if selection.shows(path)}
        self.order()

    def _groups(self, tailer: Tailer) -> set[str]:
        # a hard link shows a file in another group than it came from, and once its first name is gone only there
        groups = {tailer.entry.group, group_of(tailer.label, self.lives)}
        return groups | self._linked.get(tailer.entry.key, set())

    def _heed_notes(self, is_open: Callable[[FileKey], bool]) -> None:
        # a file that has just gone may have been truncated before; the next scan knows
        are_read = {
            tailer.file
            for key, tailer in self.tailers.items()
            if not tailer.suspect
            and (key in self._files or (tailer.unseen_since is not None and is_open(key)))
        }
        self._ignored, self._left = set(), []
        for key, note in self._notes.items():
            if not note.is_unchanged(self._files.get(key)):
                self._left.append(note)
            elif note.is_ignored and (note.copy_of is None or note.copy_of in are_read):
                self._ignored.add(key)

    def _asks(self) -> list[Ask]:
        files, tailers = self._files, self.tailers
        there = [tailer for key, tailer in tailers.items() if key in files]
        fresh = [e for key, e in files.items() if key not in tailers and key not in self._ignored]
        fresh += [tailer.entry for tailer in there if tailer.suspect]
        groups = {entry.group for entry in fresh}
        # a candidate may be the copy of any file of its group that was truncated, as no compressed one is
        plain = [t for t in there if t.entry.packed is None] if groups else []
        known = [t.entry for t in there if t.is_strange]
        known += [t.entry for t in plain if groups & self._groups(t)]
        if not fresh and not known:
            return []
        is_first = self._scanned is None or self._before is not None
        from_end = self._selection.from_end and is_first
        near = self._new_index().near
        asked = dict.fromkeys([*fresh, *known])
        return [Ask(e, near(e), from_end) for e in asked]

    def _new_index(self) -> Index:
        index = Index(self._files, self._remembered, self._scanned)
        for tailer in self.tailers.values():
            index.add_tailer(tailer, self._groups(tailer))
        for known in self._remembered.values():
            home = group_of(known.cursor.path, self.lives)
            index.add_remembered(known, home)
        return index

    def _candidate(self, key: FileKey, sample: Sample) -> Candidate:
        entry, note, head = self._files[key], self._notes.get(key), sample.head
        copy_of = note.copy_of if note and note.begins(head) else None
        was_left = entry.packed is not None and any(note.was_old(head) for note in self._left)
        return Candidate(replace(entry, size=sample.size), sample, copy_of, was_left)

    def _check_followed(self, found: Sequence[Candidate]) -> list[Tailer]:
        # stop to follow, and return, those that were truncated or written anew
        followed = [c for c in found if c.entry.key in self.tailers]
        truncated = [self.tailers[c.entry.key] for c in followed if not self._is_same(c)]
        for tailer in truncated:
            self._remember(tailer)
        self._index = self._new_index()
        self._index.not_there.update(tailer.file for tailer in truncated)
        self._index.live = {c.entry.path: c for c in found if c.entry.is_live}
        return truncated

    def _is_same(self, candidate: Candidate) -> bool:
        tailer, head = self.tailers[candidate.entry.key], candidate.seen.head
        moved = tailer.is_unread and 0 < tailer.offset < self._content_start(candidate)
        same = candidate.match(tailer.cursor) is Match.SAME and not moved
        if same := same and head.startswith(tailer.beginning):
            tailer.recognised(head, candidate.seen.size)
        return same

    def _settle_groups(self, found: Iterable[Candidate], now: int) -> list[Notice]:
        notices = []
        groups = defaultdict(list)
        for candidate in found:
            if tailer := self.tailers.get(candidate.entry.key):
                notices += self._skip_hole(tailer, candidate)
            else:
                groups[candidate.entry.group].append(candidate)
        for name, candidates in groups.items():
            notices += self._settle_group(name, candidates, now)
        return notices

    def _settle_group(self, name: str, found: Sequence[Candidate], now: int) -> list[Notice]:
        notices: list[Notice] = []
        rest = []
        for each in sorted(found, key=lambda candidate: candidate.order):
            if ruling := recognise(each, self._index.same_inode(each.entry)):
                notices += self._act(each, ruling, now)
            else:
                rest.append(each)
        group = self._index.group(name)
        # what is new in a group that we know comes after lines that we shipped, or would have
        is_known = bool(group.known) or (self._before is not None and self._before.shows(name))
        for each in rest:
            if is_known:
                each = replace(each, seen=replace(each.seen, last=None))
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
                pass  # an empty sibling is probed again
        return []

    def _go_on(self, candidate: Candidate, cursor: Cursor, now: int) -> list[Notice]:
        if (known := self._remembered.pop(cursor.file, None)) is None:
            return []  # another copy was first
        entry, seen, inode = candidate.entry, candidate.seen, cursor.identity.inode
        if cursor.offset and inode != entry.key.inode:
            self._moved[inode] = min(cursor.offset, self._moved.get(inode, cursor.offset))
        tail = seen.tails.get(cursor.file, b"")
        tailer = Tailer(cursor, entry, seen.head, tail, now, known.begun)
        return self._follow(tailer, candidate, f"goes on at byte {cursor.offset}")

    def _begin(self, candidate: Candidate, now: int) -> list[Notice]:
        entry, seen = candidate.entry, candidate.seen
        if self._selection.is_too_old(entry.modified, now):
            self._note(entry)
            text = "was not written for longer than --ignore-older; it is followed once it is"
            return [Notice(NoticeKind.AGED, entry.path, text)]
        cursor = self._new_cursor(entry, entry.path if entry.wanted else entry.group, now)
        place, tail = "its beginning", b""
        if (last := seen.last) is not None and last.offset:
            identity = identify(entry.key.inode, seen.head[: last.offset], last.tail)
            cursor = replace(cursor, offset=last.offset, identity=identity)
            place, tail = f"byte {last.offset}, behind its last line", last.tail
        tailer = Tailer(cursor, entry, seen.head, tail, now)
        return self._follow(tailer, candidate, f"is followed from {place}")

    def _new_cursor(self, entry: FileEntry, label: str, now: int) -> Cursor:
        return Cursor(self._new_id(), label, 0, identify(entry.key.inode, b"", b""), now)

    def _follow(self, tailer: Tailer, candidate: Candidate, text: str) -> list[Notice]:
        entry = tailer.entry
        self.tailers[entry.key] = tailer
        self._index.joined_by(tailer)
        return self._skip_hole(tailer, candidate) or [Notice(NoticeKind.FOUND, entry.path, text)]

    def _skip_hole(self, tailer: Tailer, candidate: Candidate) -> list[Notice]:
        if tailer.offset or not (start := self._content_start(candidate)):
            return []
        tailer.skip_hole(start)
        text = f"begins with a hole of {start} bytes: its writer kept its offset when the file was truncated"
        return [Notice(NoticeKind.FOUND, tailer.entry.path, f"{text}; it is followed from there")]

    def _content_start(self, candidate: Candidate) -> int:
        inode = candidate.entry.key.inode
        cursors = (known.cursor for known in self._remembered.values())
        offsets = (cursor.offset for cursor in cursors if cursor.identity.inode == inode)
        return content_start(candidate.seen, chain(offsets, [self._moved.get(inode, 0)]))

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

    def _remember(self, tailer: Tailer, *, keep: bool = False) -> None:
        groups, start = frozenset(self._groups(tailer)), tailer.start
        cursor = start if tailer.is_unread else tailer.cursor
        del self.tailers[tailer.entry.key]
        self._remembered[tailer.file] = Remembered(cursor, groups, keep, start)

    def _truncated_notice(self, tailer: Tailer) -> Notice:
        if copy := rest_of(tailer, self.tailers.values()):
            text, lost = f"was truncated; its rest is read from {copy.path}", 0
        else:
            lost = tailer.unread
            text = f"was truncated or written anew; {lost} bytes were seen in it and not read"
        return Notice(NoticeKind.TRUNCATED, tailer.entry.path, text, lost)

    def _sort_out(self, now: int, stored: Callable[[str], int]) -> None:
        # forget what is long gone, if much has gathered; what has a position may have to be gone back to
        remembered = self._remembered
        if len(remembered) + len(self.lives) <= self._sorted + _GROWTH:
            return
        gone = [known.cursor for known in remembered.values() if not known.keep]
        for cursor in forgettable((c for c in gone if not stored(c.file)), now):
            del remembered[cursor.file]
        there = {entry.path for entry in self._files.values() if entry.wanted}
        there |= {tailer.entry.group for tailer in self.tailers.values()}
        self.lives &= there | {known.cursor.path for known in remembered.values()}
        self._sorted = len(remembered) + len(self.lives)
