"""The file catalogue: which files are followed, which are only remembered, and what every newly found file is.

A file is followed by a tailer (by device and inode), remembered by its cursor (by file id) when it is followed no longer,
or left by a note (by device and inode) as the copy of another one, as older than our time, or as useless. Memory only;
touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.wire.positions import Cursor, forgettable
from shipper.tail.identity import Ask, Sample, fingerprint, identify, is_inside_line
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection, age, group_of
from shipper.tail.rules import (
    Candidate,
    FilePresence,
    Known,
    RotationGroup,
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
class _Note:
    """Why a file is not followed: its first `length` bytes have the hash `head`, `copy_of` is the id of its original."""

    entry: FileEntry
    length: int
    head: str
    copy_of: str | None

    @property
    def is_ignored(self) -> bool:
        """Whether it is not sampled until it changes or its original is read no longer; any other is after each scan."""
        return self.entry.packing is not None or self.copy_of is None

    def begins(self, head: bytes) -> bool:
        """Whether a file that begins with `head` may be this one: its inode may be another's, and it may have grown."""
        return len(head) >= self.length and fingerprint(head[: self.length]) == self.head

    def is_unchanged(self, now: FileEntry | None) -> bool:
        """Whether the file still is as it was when the note was taken."""
        return now is not None and _traits(now) == _traits(self.entry)


def _traits(entry: FileEntry) -> tuple[object, ...]:
    stored = None if entry.packing is None else entry.stored
    return entry.packing, stored, entry.modified, entry.wanted, entry.is_live


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
        self._remembered = {cursor.file: cursor for cursor in known}
        self._begun: dict[str, Cursor] = {}  # where the reading of remembered files began
        self._by_group: Mapping[str, list[Cursor]] = {}
        self._by_inode: Mapping[int, list[Cursor]] = {}
        self._there: Collection[tuple[str, int]] = ()
        self._notes: dict[FileKey, _Note] = {}
        self._files: dict[FileKey, FileEntry] = {}
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
        if tailer.beginning:
            self._remembered[tailer.file] = tailer.last
            self._begun[tailer.file] = tailer.start

    def settle(
        self, samples: Mapping[FileKey, Sample], now: int, stored: Callable[[str], int]
    ) -> list[Notice]:
        """Decide what the files that were sampled are, and follow those that are to be followed.

        `stored` returns up to which byte a file is stored, by id; 0 once its position is forgotten.
        """
        found = [self._candidate(key, seen) for key, seen in samples.items()]
        found = [candidate for candidate in found if candidate.entry.group not in self._held]
        truncated = self._check_followed(found, now)
        notices = self._settle_groups(found, {t.file for t in truncated}, now) if found else []
        notices += [self._truncated_notice(tailer) for tailer in truncated]
        self._before = None
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
        self._remembered = {known.file: known}
        self._begun.clear()
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
        for tailer in self.tailers.values():
            known_as = cursors.get(tailer.file, tailer.start)
            tailer.rewind(replace(known_as, path=tailer.label), now)
        self._remembered = {file: c for file, c in cursors.items() if file not in followed}
        self._begun.clear()
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
        paths = {*self.lives, *(cursor.path for cursor in self._remembered.values())}
        self.lives = {path for path in paths if selection.shows(path)}
        self.order()

    # which files must be sampled

    def _asks(self, is_open: Callable[[FileKey], bool]) -> list[Ask]:
        files, tailers, ignored = self._files, self.tailers, self._ignored(is_open)
        there = [tailer for key, tailer in tailers.items() if key in files]
        fresh = [e for key, e in files.items() if key not in tailers and key not in ignored]
        fresh += [t.entry for t in there if t.suspect or (t.entry.size and not t.beginning)]
        if not fresh:
            return []
        groups = {entry.group for entry in fresh}
        # a candidate may be the copy of any file of its group that was truncated, as no compressed one is
        fresh += [t.entry for t in there if t.entry.group in groups and t.entry.packing is None]
        is_first = self._scanned is None or self._before is not None
        from_end = self._selection.from_end and is_first
        self._sort_known()
        return [Ask(entry, self._near(entry), from_end) for entry in dict.fromkeys(fresh)]

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

    def _sort_known(self) -> None:
        by_group, by_inode = defaultdict(list), defaultdict(list)
        for cursor in self._remembered.values():
            by_group[group_of(cursor.path, self.lives)].append(cursor)
            by_inode[cursor.identity.inode].append(cursor)
        self._by_group, self._by_inode = by_group, by_inode
        self._there = {(entry.group, key.inode) for key, entry in self._files.items()}
        self.order()

    def _near(self, entry: FileEntry) -> tuple[Cursor, ...]:
        """Return the cursors that a file may belong to."""
        near = [known.cursor for known in self._known(entry.group)]
        return tuple({c.file: c for c in (*near, *self._by_inode[entry.key.inode])}.values())

    def _known(self, group: str) -> list[Known]:
        """Return the files that are known of a group."""
        known = [
            Known(tailer.cursor, FilePresence.FOLLOWED)
            if tailer.entry.key in self._files
            else Known(tailer.last, FilePresence.DELETED)
            for tailer in self.chains.get(group, ())
        ]
        for cursor in self._by_group[group]:
            if cursor.file in self._remembered:
                is_there = (group, cursor.identity.inode) in self._there
                known.append(
                    Known(cursor, FilePresence.TRUNCATED if is_there else FilePresence.GONE)
                )
        return known

    # what the sampled files are

    def _candidate(self, key: FileKey, seen: Sample) -> Candidate:
        note = self._notes.get(key)
        copy_of = note.copy_of if note and note.begins(seen.head) else None
        return Candidate(replace(self._files[key], size=seen.size), seen, copy_of)

    def _check_followed(self, found: Iterable[Candidate], now: int) -> list[Tailer]:
        """Stop to follow, and return, those that were truncated or written anew."""
        truncated = []
        for candidate in found:
            tailer, seen = self.tailers.get(candidate.entry.key), candidate.seen
            if tailer is None:
                continue
            if candidate.is_same(tailer.cursor) and seen.head.startswith(tailer.beginning):
                tailer.recognised(seen, now)
            else:
                self.leave(tailer)
                truncated.append(tailer)
        return truncated

    def _settle_groups(
        self, found: Iterable[Candidate], truncated: Collection[str], now: int
    ) -> list[Notice]:
        groups = defaultdict(list)
        for candidate in found:
            if candidate.entry.key not in self.tailers:
                groups[candidate.entry.group].append(candidate)
        self._sort_known()
        notices = []
        for name, candidates in groups.items():
            candidates.sort(key=lambda candidate: candidate.order)
            rest = []
            for each in candidates:
                if (recognised := self._recognise(each, truncated, now)) is None:
                    rest.append(each)
                else:
                    notices += recognised
            notices += self._settle_group(name, rest, now)
        return notices

    def _recognise(
        self, candidate: Candidate, truncated: Collection[str], now: int
    ) -> list[Notice] | None:
        """Read on a file that has the inode of a remembered one; None where it has not."""
        same = [
            cursor
            for cursor in self._by_inode[candidate.entry.key.inode]
            # its inode alone may be another file's soon; and the file on that of a truncated one is another
            if (cursor.offset or cursor.identity.head_length) and cursor.file not in truncated
        ]
        if not (cursors := recognise(candidate, same)):
            return None
        for other in cursors[1:]:
            # an agent found the same file and read nothing of it: a copy would be taken for its file
            if other.path == cursors[0].path and not other.offset:
                self._remembered.pop(other.file, None)
        return self._go_on(candidate, cursors[0], now)

    def _settle_group(self, name: str, found: Iterable[Candidate], now: int) -> list[Notice]:
        known = self._known(name)
        rotated = (t.entry for t in self.chains.get(name, ()) if not t.entry.is_live)
        oldest = min((age(entry.modified, entry.path) for entry in rotated), default=None)
        group = RotationGroup(known, oldest, self._newest([one.cursor for one in known]))
        # what is new in a group that we know comes after lines that we shipped, or would have
        is_known = bool(known) or (self._before is not None and self._before.shows(name))
        notices = []
        for each in found:
            if is_known:
                each = replace(each, seen=replace(each.seen, last=(0, b"")))
            notices += self._act(each, *rule(each, group), now)
            entry = each.entry
            if entry.key in self.tailers and not entry.is_live:
                joined = age(entry.modified, entry.path)  # what is younger is new as well
                group.oldest = joined if group.oldest is None else min(group.oldest, joined)
        return notices

    def _newest(self, cursors: Collection[Cursor]) -> int | None:
        # a backlog may be read long after its successor was written and rotated, but not before the last scan
        times = [] if self._scanned is None else [self._scanned]
        # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
        read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
        return min([*times, max(read)] if read else times, default=None)

    def _act(
        self, candidate: Candidate, verdict: Verdict, cursor: Cursor | None, now: int
    ) -> list[Notice]:
        entry, seen = candidate.entry, candidate.seen
        self._notes.pop(entry.key, None)
        match verdict:
            case Verdict.INHERIT if cursor is not None:
                return self._go_on(candidate, cursor, now)
            case Verdict.BEGIN:
                return self._begin(candidate, now)
            case Verdict.COPY:
                self._note_copy(candidate, cursor)
            case Verdict.OLD:
                self._note(entry, seen.head)
            case Verdict.DAMAGED:
                self._note(entry)
                reached = len(seen.head) and entry.size
                text = f"is damaged behind byte {reached} ({seen.damage}): what was not read before is lost"
                return [Notice(NoticeKind.DAMAGED, entry.path, text)]
            case Verdict.EMPTY if entry.packing is not None:
                self._note(entry)
            case _:
                pass  # an empty sibling is sampled again
        return []

    def _go_on(self, candidate: Candidate, cursor: Cursor, now: int) -> list[Notice]:
        if self._remembered.pop(cursor.file, None) is None:
            return []  # another copy was first
        self._notes.pop(candidate.entry.key, None)
        begun = self._begun.pop(cursor.file, None)
        tailer = Tailer(cursor, candidate.entry, candidate.seen.head, now, begun)
        is_in_line = candidate.seen.held.get(cursor.file, False)
        return self._follow(tailer, is_in_line, now, f"goes on at byte {cursor.offset}")

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
        tailer = Tailer(cursor, entry, seen.head, now)
        return self._follow(tailer, is_inside_line(tail), now, f"is followed from byte {offset}")

    def _follow(self, tailer: Tailer, is_in_line: bool, now: int, text: str) -> list[Notice]:
        entry = tailer.entry
        tailer.line_began = now if is_in_line else None
        self.tailers[entry.key] = tailer
        self.chains.setdefault(entry.group, []).append(tailer)
        return [Notice(NoticeKind.FOUND, entry.path, text)]

    def _note_copy(self, candidate: Candidate, cursor: Cursor | None) -> None:
        entry, original = candidate.entry, cursor.file if cursor else None
        if cursor is None:
            live = (t.file for t in self.chains.get(entry.group, ()) if t.entry.is_live)
            original = next(live, None)
        if entry.packing is None and candidate.copy_of is not None:
            original = candidate.copy_of  # which may have been truncated since
        if original is not None:
            self._note(entry, candidate.seen.head, original)

    def _note(self, entry: FileEntry, head: bytes = b"", copy_of: str | None = None) -> None:
        self._notes[entry.key] = _Note(entry, len(head), fingerprint(head), copy_of)

    # what is followed no longer

    def _truncated_notice(self, tailer: Tailer) -> Notice:
        lost = tailer.size - tailer.offset
        text = f"was truncated or written anew; {lost} bytes were seen in it and not read"
        for other in self.tailers.values():
            if other.file == tailer.file:
                text, lost = f"was truncated; its rest is read from {other.entry.path}", 0
        return Notice(NoticeKind.TRUNCATED, tailer.entry.path, text, lost)

    def _sort_out(self, now: int, stored: Callable[[str], int]) -> None:
        # forget what is long gone, if much has gathered; what has a position may have to be gone back to
        remembered = self._remembered
        if len(remembered) + len(self.lives) <= self._sorted + _GROWTH:
            return
        for cursor in forgettable((c for c in remembered.values() if not stored(c.file)), now):
            del remembered[cursor.file]
            self._begun.pop(cursor.file, None)
        there = {entry.path for entry in self._files.values() if entry.wanted}
        self.lives &= there | self.chains.keys() | {known.path for known in remembered.values()}
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
