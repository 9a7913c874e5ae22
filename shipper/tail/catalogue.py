"""The file catalogue: which files are followed, which are only remembered, and what every newly seen file is.

A file is in one of three places: followed by a tailer (by device and inode), known by a cursor without a file, or
ignored because it was rotated before our time. Memory only; touches no disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from shipper.positions import Cursor
from shipper.tail.candidates import (
    Index,
    Outlook,
    asks,
    candidate,
    concerned,
    kin,
    outlook,
    with_homes,
)
from shipper.tail.identity import Match, identify
from shipper.tail.memory import Copies, Holes, Memory, Passed, rest_of
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection, group_of
from shipper.tail.probe import Ask, Sample
from shipper.tail.rules import Candidate, Ruling, Verdict, namesakes, rule, rule_known
from shipper.tail.scan import FileEntry, FileKey
from shipper.tail.tailer import Tailer

__all__ = ["Catalogue"]


def _begun_notice(entry: FileEntry, offset: int) -> Notice:
    """Say that a file is followed, and from which byte on."""
    place = f"byte {offset}, behind its last line" if offset else "its beginning"
    return Notice(NoticeKind.FOUND, entry.path, f"is followed from {place}")


def _goes_on_notice(entry: FileEntry, offset: int) -> Notice:
    """Say that a file is one that we know."""
    return Notice(NoticeKind.FOUND, entry.path, f"goes on at byte {offset}")


def _hole_notice(entry: FileEntry, start: int) -> Notice:
    """Say that a file is followed from behind the hole that it begins with."""
    text = f"begins with a hole of {start} bytes: its writer kept its offset when the file was"
    return Notice(NoticeKind.FOUND, entry.path, f"{text} truncated; it is followed from there")


def _renewed_notice(entry: FileEntry) -> Notice:
    """Say that an open file without a name has other content than the one that was read."""
    text = "was written anew before it was deleted; that is read"
    return Notice(NoticeKind.FOUND, entry.path, text)


def _aged_notice(entry: FileEntry) -> Notice:
    """Say that a file is not followed."""
    text = "was not written for longer than --ignore-older; it is followed once it is"
    return Notice(NoticeKind.AGED, entry.path, text)


def _damaged_notice(entry: FileEntry, reached: int, damage: str) -> Notice:
    """Say from where on a compressed file is of no use."""
    text = f"is damaged behind byte {reached} ({damage}): what was not read before is lost"
    return Notice(NoticeKind.DAMAGED, entry.path, text)


def _truncated_notice(entry: FileEntry, lost: int, copy: FileEntry | None) -> Notice:
    """Say that what was read of a file is gone, and where its rest is read from; else `lost` bytes were not read."""
    if copy is not None:
        text = f"was truncated; its rest is read from {copy.path}"
        return Notice(NoticeKind.TRUNCATED, entry.path, text)
    text = f"was truncated or written anew; {lost} bytes were seen in it and not read"
    return Notice(NoticeKind.TRUNCATED, entry.path, text, lost)


class Catalogue:
    """The files that one follower knows; `chains` holds its tailers by group, oldest first."""

    def __init__(
        self, selection: Selection, known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.memory = Memory(known, selection)
        self.tailers: dict[FileKey, Tailer] = {}
        self.chains: dict[str, list[Tailer]] = {}
        self._selection = selection
        self._before: Selection | None = None
        self._new_id = new_id
        self._passed = Passed()
        self._copies = Copies()
        self._holes = Holes()
        self._shown = Outlook()
        self._looked: int | None = None
        self._held: Set[str] = frozenset()

    def sight(
        self, entries: Iterable[FileEntry], now: int, is_open: Callable[[FileKey], bool]
    ) -> tuple[list[Ask], list[Notice]]:
        """Take note of a look; return which files must be glimpsed at before `settle`, and what there is to say.

        The inode of a file that is not open may have been given to another one.
        """
        paths = {key: tailer.entry.path for key, tailer in self.tailers.items()}
        self._shown = outlook(entries, paths, self._looked)
        self._held = frozenset()
        self.memory.lives |= {s.path for s in self._shown.files.values() if s.wanted}
        notices = []
        for key, tailer in self.tailers.items():
            before = tailer.entry
            if entry := self._shown.files.get(key):
                tailer.sighted(entry, now)
                tailer.suspect |= entry.differs(before) and not is_open(key)
                if entry.path != before.path:
                    text = f"is now {entry.path}"
                    notices.append(Notice(NoticeKind.ROTATED, before.path, text))
        self._passed.keep(self._shown.files, lambda: self._being_read(is_open))
        from_end = self._selection.from_end and (self._looked is None or self._before is not None)
        lives = self.memory.lives
        return asks(self._shown, self.tailers, self._passed, self._index, lives, from_end), notices

    def concerned(self, asks: Sequence[Ask]) -> set[str]:
        """Return the groups of which something is to be decided in this look."""
        return concerned(asks, self.tailers, self.unseen(), self.memory.lives)

    def hold(self, groups: Set[str]) -> None:
        """Decide nothing about these groups in this look: what was seen of them does not belong together."""
        self._held = with_homes(groups, self.tailers.values(), self.memory.lives)

    def settle(self, samples: Mapping[FileKey, Sample], now: int) -> list[Notice]:
        """Decide what the files that were glimpsed at are, and follow those that are to be followed."""
        files = self._shown.files
        samples = {k: s for k, s in samples.items() if files[k].group not in self._held}
        if not self._held:
            self._copies.keep(files)
            self._holes.keep(files)
            self._looked = now  # what is older, and not known after this, was there before us
        truncated = [
            self._remember(key)
            for key in list(self.tailers)
            if key in samples and not self._is_same(key, samples[key])
        ]
        notices = [
            notice
            for key in self.tailers.keys() & samples.keys()
            for notice in self._past_hole(self.tailers[key], self._candidate(key, samples[key]))
        ]
        groups: dict[str, list[Candidate]] = {}
        for key, seen in samples.items():
            if key not in self.tailers and key in self._shown.files:
                found = self._candidate(key, seen)
                groups.setdefault(found.entry.group, []).append(found)
        index = self._index() if groups else Index()
        for tailer in truncated:
            index.part(tailer.cursor)
        for group, candidates in groups.items():
            notices += self._settle_group(group, candidates, samples, index, now)
        notices += [
            _truncated_notice(t.entry, t.unread, rest_of(t, self.tailers.values()))
            for t in truncated
        ]
        self.memory.drop_unread(truncated)
        self._before = None
        if not self._held:  # or it would be their cursors that seem to be without a file
            wanted = [s.path for s in self._shown.files.values() if s.wanted]
            self.memory.tidy([*wanted, *(t.entry.group for t in self.tailers.values())], now)
        self.order()
        return notices

    def retarget(self, selection: Selection) -> None:
        """Follow another selection: forget nothing, but let go of the files of which it shows no part."""
        self._before, self._selection = self._selection, selection
        for key, tailer in list(self.tailers.items()):
            if not selection.covers(tailer.entry.path, tailer.entry.group):
                self.memory.take_to_keep(self.tailers.pop(key))
        self.memory.select(selection)
        self._passed.ask_again()
        self.order()

    def turn_to(self, selection: Selection, known: Cursor) -> None:
        """Follow another selection, and know nothing of its files but this cursor."""
        self._selection = selection
        self.memory = Memory([known], selection)
        self.tailers.clear()
        self.order()

    def rewind(self, cursors: Mapping[str, Cursor], moved: Mapping[FileKey, Tailer | None]) -> None:
        """Remember these cursors and no others; `moved` are the followed files as they are read on, None where one is lost."""
        for key, tailer in moved.items():
            if tailer is None:
                del self.tailers[key]
            else:
                self.tailers[key] = tailer
        followed = {tailer.file for tailer in self.tailers.values()}
        self.memory.cursors = {
            file: cursor for file, cursor in cursors.items() if file not in followed
        }
        self.order()

    def leave(self, tailer: Tailer) -> None:
        """Stop following a file; its cursor is remembered, should it come back."""
        self._remember(tailer.entry.key)
        self.memory.drop_unread([tailer])
        if tailer.is_unread and tailer.beginning:
            self.memory.cursors[tailer.file] = tailer.start  # it may have been compressed

    def renew(self, tailer: Tailer, head: bytes, modified: int, now: int) -> list[Notice]:
        """Follow what a file was written anew with before it was deleted: it is open still, though at no path."""
        entry = replace(tailer.entry, size=0)
        fresh = Tailer(self._beginning(entry, tailer.label, now), entry, head, b"", now)
        fresh.unseen(now, modified)
        self.tailers[entry.key] = fresh
        return [_renewed_notice(entry)]

    def order(self) -> None:
        """Sort the chains, oldest first."""
        self.chains = {}
        for tailer in self.tailers.values():
            self.chains.setdefault(tailer.entry.group, []).append(tailer)
        for chain in self.chains.values():
            chain.sort(key=lambda tailer: tailer.age)

    def unseen(self) -> list[Tailer]:
        """Return the followed files that the last look did not show."""
        unseen = (t for key, t in self.tailers.items() if key not in self._shown.files)
        return [tailer for tailer in unseen if tailer.entry.group not in self._held]

    def passed_over(self) -> list[FileEntry]:
        """Return the files that patterns show and that are left, since they were not written for too long."""
        return self._passed.wanted()

    def _being_read(self, is_open: Callable[[FileKey], bool]) -> set[str]:
        # an original that has just gone may have been truncated before; the look after this one knows
        return {
            tailer.file
            for key, tailer in self.tailers.items()
            if not tailer.suspect
            and (key in self._shown.files or (tailer.unseen_since is not None and is_open(key)))
        }

    def _index(self) -> Index:
        index = Index()
        for tailer in self.tailers.values():
            index.add_tailer(tailer, group_of(tailer.label, self.memory.lives))
        for cursor in self.memory.cursors.values():
            index.add_known(cursor, self.memory.groups_of(cursor))
        return index

    def _candidate(self, key: FileKey, seen: Sample) -> Candidate:
        return candidate(self._shown.files[key], seen, self._copies.original(key, seen.head))

    def _is_same(self, key: FileKey, sample: Sample) -> bool:
        tailer = self.tailers[key]
        candidate = self._candidate(key, sample)
        same = candidate.judged(tailer.cursor) is Match.SAME
        moved = tailer.is_unread and 0 < tailer.offset < self._start_of(candidate)
        if same := same and not moved and candidate.head.startswith(tailer.beginning):
            tailer.recognised(candidate.head, sample.size)
        return same

    def _settle_group(
        self,
        group: str,
        candidates: list[Candidate],
        samples: Mapping[FileKey, Sample],
        index: Index,
        now: int,
    ) -> list[Notice]:
        notices = []
        rest = []
        for each in sorted(candidates, key=lambda candidate: candidate.order):
            likely = index.known(each.entry)
            if ruling := rule_known(each, likely):
                notices += self._act(ruling, each, index, now)
                # it was found by another agent as well, which read nothing of it: a copy would be taken for that one's
                self.memory.drop(namesakes(each, ruling, likely))
            else:
                rest.append(each)
        live = self._live_one(group, samples)
        chain = kin(group, live, self._shown, index, self.memory.cursors)
        # what is new in a group that we know comes after lines that we shipped, or would have
        known = bool(chain.cursors) or (self._before is not None and self._before.shows(group))
        for each in (replace(one, last=None) if known else one for one in rest):
            ruling = rule(each, replace(chain, oldest=index.oldest(group)))
            notices += self._act(ruling, each, index, now)
        return notices

    def _live_one(self, group: str, samples: Mapping[FileKey, Sample]) -> Candidate | None:
        entry = self._shown.live.get(group)
        seen = None if entry is None else samples.get(entry.key)
        return None if entry is None or seen is None else self._candidate(entry.key, seen)

    def _act(self, ruling: Ruling, candidate: Candidate, index: Index, now: int) -> list[Notice]:
        entry, head = candidate.entry, candidate.head
        match ruling.verdict:
            case Verdict.CONTINUE | Verdict.INHERIT if ruling.cursor is not None:
                return self._go_on(ruling.cursor, candidate, index, now)
            case Verdict.BEGIN if entry.packed is None or not self._passed.was_left(head):
                return self._begin(candidate, index, now)
            case Verdict.OLD | Verdict.BEGIN:
                self._passed.leave(entry, head=head)
            case Verdict.COPY:
                self._note_copy(candidate)
                if entry.packed is not None and ruling.cursor is not None:
                    self._passed.leave(entry, ruling.cursor.file)
            case Verdict.DAMAGED:
                self._passed.leave(entry)
                reached = len(candidate.head) and entry.size
                return [_damaged_notice(entry, reached, candidate.damage)]
            case _ if entry.packed is not None:
                self._passed.leave(entry)
            case _:
                pass  # an empty sibling is looked at again
        return []

    def _begin(self, candidate: Candidate, index: Index, now: int) -> list[Notice]:
        entry, last = candidate.entry, candidate.last
        if self._selection.is_too_old(entry.modified, now):
            self._passed.leave(entry)
            return [_aged_notice(entry)]
        label = entry.path if entry.wanted else entry.group
        cursor = self._beginning(entry, label, now)
        if last is not None and last.offset:
            identity = identify(entry.key.inode, candidate.head[: last.offset], last.tail)
            cursor = replace(cursor, offset=last.offset, identity=identity)
        tailer = Tailer(cursor, entry, candidate.head, last.tail if last else b"", now)
        self._follow(tailer, index)
        return self._past_hole(tailer, candidate) or [_begun_notice(entry, cursor.offset)]

    def _beginning(self, entry: FileEntry, label: str, now: int) -> Cursor:
        identity = identify(entry.key.inode, b"", b"")
        return Cursor(self._new_id(), label, 0, identity, now)

    def _follow(self, tailer: Tailer, index: Index) -> None:
        self.tailers[tailer.entry.key] = tailer
        self._copies.forget(tailer.entry.key)
        index.tailers[tailer.entry.group].append(tailer)

    def _note_copy(self, candidate: Candidate) -> None:
        live = self._shown.live.get(candidate.entry.group)
        if live is not None and (original := self.tailers.get(live.key)) is not None:
            self._copies.note(candidate.entry.key, candidate.head, original.file)

    def _go_on(self, cursor: Cursor, candidate: Candidate, index: Index, now: int) -> list[Notice]:
        if self.memory.cursors.pop(cursor.file, None) is None:
            return []  # another copy was first
        tail = candidate.tails.get(cursor.file, b"")
        entry = candidate.entry
        tailer = Tailer(cursor, entry, candidate.head, tail, now)
        self._follow(tailer, index)
        self._holes.moved(cursor, entry.key)
        return self._past_hole(tailer, candidate) or [_goes_on_notice(entry, cursor.offset)]

    def _past_hole(self, tailer: Tailer, candidate: Candidate) -> list[Notice]:
        if tailer.offset or not (start := self._start_of(candidate)):
            return []
        tailer.skip_hole(start)
        return [_hole_notice(tailer.entry, start)]

    def _start_of(self, candidate: Candidate) -> int:
        return self._holes.start_of(candidate, self.memory.cursors.values())

    def _remember(self, key: FileKey) -> Tailer:
        tailer = self.tailers.pop(key)
        self.memory.take(tailer)
        return tailer
