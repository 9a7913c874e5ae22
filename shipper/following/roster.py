"""Which files are followed, which are only remembered, and what every newly seen file is. Memory; touches no disk.

A file is in one of three places: followed by a tailer (by device and inode), known by a cursor without a file, or
passed over because it was rotated before our time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from shipper.cursor import Cursor
from shipper.files.families import family_of
from shipper.files.identity import Match, identify
from shipper.files.sampling import Ask, Sample
from shipper.files.selection import Selection
from shipper.files.sighting import FileKey, Sighting
from shipper.files.tailer import Tailer
from shipper.following import sentences
from shipper.following.asking import asks
from shipper.following.chain import Ruling, Stranger, Verdict, namesakes, rule_known
from shipper.following.copies import Copies, rest_of
from shipper.following.held import concerned, with_homes
from shipper.following.holes import Holes
from shipper.following.index import Index
from shipper.following.kin import kin
from shipper.following.memory import Memory
from shipper.following.outlook import Outlook, outlook
from shipper.following.passed import Passed
from shipper.following.ruling import rule
from shipper.following.strangers import stranger
from shipper.notice import Notice, NoticeKind

__all__ = ["Roster"]


class Roster:
    """The files that one follower knows; `chains` holds its tailers by family, oldest first."""

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
        self, sightings: Iterable[Sighting], now: int, is_open: Callable[[FileKey], bool]
    ) -> tuple[list[Ask], list[Notice]]:
        """Take note of a look; return which files must be glimpsed at before `settle`, and what there is to say.

        The inode of a file that is not open may have been given to another one.
        """
        paths = {key: tailer.sighting.path for key, tailer in self.tailers.items()}
        self._shown = outlook(sightings, paths, self._looked)
        self._held = frozenset()
        self.memory.lives |= {s.path for s in self._shown.files.values() if s.wanted}
        notices = []
        for key, tailer in self.tailers.items():
            before = tailer.sighting
            if sighting := self._shown.files.get(key):
                tailer.sighted(sighting, now)
                tailer.suspect |= sighting.differs(before) and not is_open(key)
                if sighting.path != before.path:
                    text = f"is now {sighting.path}"
                    notices.append(Notice(NoticeKind.ROTATED, before.path, text))
        self._passed.keep(self._shown.files, lambda: self._being_read(is_open))
        from_end = self._selection.from_end and (self._looked is None or self._before is not None)
        lives = self.memory.lives
        return asks(self._shown, self.tailers, self._passed, self._index, lives, from_end), notices

    def concerned(self, asks: Sequence[Ask]) -> set[str]:
        """Return the families of which something is to be decided in this look."""
        return concerned(asks, self.tailers, self.unseen(), self.memory.lives)

    def hold(self, families: Set[str]) -> None:
        """Decide nothing about these families in this look: what was seen of them does not belong together."""
        self._held = with_homes(families, self.tailers.values(), self.memory.lives)

    def settle(self, samples: Mapping[FileKey, Sample], now: int) -> list[Notice]:
        """Decide what the files that were glimpsed at are, and follow those that are to be followed."""
        files = self._shown.files
        samples = {k: s for k, s in samples.items() if files[k].family not in self._held}
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
            for notice in self._past_hole(self.tailers[key], self._stranger(key, samples[key]))
        ]
        families: dict[str, list[Stranger]] = {}
        for key, seen in samples.items():
            if key not in self.tailers and key in self._shown.files:
                found = self._stranger(key, seen)
                families.setdefault(found.sighting.family, []).append(found)
        index = self._index() if families else Index()
        for tailer in truncated:
            index.part(tailer.cursor)
        for family, strangers in families.items():
            notices += self._settle_family(family, strangers, samples, index, now)
        notices += [
            sentences.truncated(t.sighting, t.unread, rest_of(t, self.tailers.values()))
            for t in truncated
        ]
        self.memory.drop_unread(truncated)
        self._before = None
        if not self._held:  # or it would be their cursors that seem to be without a file
            wanted = [s.path for s in self._shown.files.values() if s.wanted]
            self.memory.tidy([*wanted, *(t.sighting.family for t in self.tailers.values())], now)
        self.order()
        return notices

    def retarget(self, selection: Selection) -> None:
        """Follow another selection: forget nothing, but let go of the files of which it shows no part."""
        self._before, self._selection = self._selection, selection
        for key, tailer in list(self.tailers.items()):
            if not selection.covers(tailer.sighting.path, tailer.sighting.family):
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

    def leave(self, tailer: Tailer) -> None:
        """Stop following a file; its cursor is remembered, should it come back."""
        self._remember(tailer.sighting.key)
        self.memory.drop_unread([tailer])
        if tailer.is_unread and tailer.beginning:
            self.memory.cursors[tailer.file] = tailer.start  # it may have been compressed

    def renew(self, tailer: Tailer, head: bytes, modified: int, now: int) -> list[Notice]:
        """Follow what a file was written anew with before it was deleted: it is open still, though at no path."""
        sighting = replace(tailer.sighting, size=0)
        fresh = Tailer(self._beginning(sighting, tailer.label, now), sighting, head, b"", now)
        fresh.unseen(now, modified)
        self.tailers[sighting.key] = fresh
        return [sentences.renewed(sighting)]

    def order(self) -> None:
        """Sort the chains, oldest first."""
        self.chains = {}
        for tailer in self.tailers.values():
            self.chains.setdefault(tailer.sighting.family, []).append(tailer)
        for chain in self.chains.values():
            chain.sort(key=lambda tailer: tailer.age)

    def unseen(self) -> list[Tailer]:
        """Return the followed files that the last look did not show."""
        unseen = (t for key, t in self.tailers.items() if key not in self._shown.files)
        return [tailer for tailer in unseen if tailer.sighting.family not in self._held]

    def passed_over(self) -> list[Sighting]:
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
            index.add_tailer(tailer, family_of(tailer.label, self.memory.lives))
        for cursor in self.memory.cursors.values():
            index.add_known(cursor, self.memory.families_of(cursor))
        return index

    def _stranger(self, key: FileKey, seen: Sample) -> Stranger:
        return stranger(self._shown.files[key], seen, self._copies.original(key, seen.head))

    def _is_same(self, key: FileKey, sample: Sample) -> bool:
        tailer = self.tailers[key]
        stranger = self._stranger(key, sample)
        same = stranger.judged(tailer.cursor) is Match.SAME
        moved = tailer.is_unread and 0 < tailer.offset < self._start_of(stranger)
        if same := same and not moved and stranger.head.startswith(tailer.beginning):
            tailer.recognised(stranger.head, sample.size)
        return same

    def _settle_family(
        self,
        family: str,
        strangers: list[Stranger],
        samples: Mapping[FileKey, Sample],
        index: Index,
        now: int,
    ) -> list[Notice]:
        notices = []
        rest = []
        for each in sorted(strangers, key=lambda stranger: stranger.order):
            candidates = index.known(each.sighting)
            if ruling := rule_known(each, candidates):
                notices += self._act(ruling, each, index, now)
                # it was found by another agent as well, which read nothing of it: a copy would be taken for that one's
                self.memory.drop(namesakes(each, ruling, candidates))
            else:
                rest.append(each)
        live = self._live_one(family, samples)
        chain = kin(family, live, self._shown, index, self.memory.cursors)
        # what is new in a family that we know comes after lines that we shipped, or would have
        known = bool(chain.cursors) or (self._before is not None and self._before.shows(family))
        for each in (replace(one, last=None) if known else one for one in rest):
            ruling = rule(each, replace(chain, oldest=index.oldest(family)))
            notices += self._act(ruling, each, index, now)
        return notices

    def _live_one(self, family: str, samples: Mapping[FileKey, Sample]) -> Stranger | None:
        sighting = self._shown.live.get(family)
        seen = None if sighting is None else samples.get(sighting.key)
        return None if sighting is None or seen is None else self._stranger(sighting.key, seen)

    def _act(self, ruling: Ruling, stranger: Stranger, index: Index, now: int) -> list[Notice]:
        sighting, head = stranger.sighting, stranger.head
        match ruling.verdict:
            case Verdict.CONTINUE | Verdict.INHERIT if ruling.cursor is not None:
                return self._go_on(ruling.cursor, stranger, index, now)
            case Verdict.BEGIN if sighting.packed is None or not self._passed.was_left(head):
                return self._begin(stranger, index, now)
            case Verdict.OLD | Verdict.BEGIN:
                self._passed.leave(sighting, head=head)
            case Verdict.COPY:
                self._note_copy(stranger)
                if sighting.packed is not None and ruling.cursor is not None:
                    self._passed.leave(sighting, ruling.cursor.file)
            case Verdict.DAMAGED:
                self._passed.leave(sighting)
                reached = len(stranger.head) and sighting.size
                return [sentences.damaged(sighting, reached, stranger.damage)]
            case _ if sighting.packed is not None:
                self._passed.leave(sighting)
            case _:
                pass  # an empty sibling is looked at again
        return []

    def _begin(self, stranger: Stranger, index: Index, now: int) -> list[Notice]:
        sighting, last = stranger.sighting, stranger.last
        if self._selection.is_too_old(sighting.modified, now):
            self._passed.leave(sighting)
            return [sentences.aged(sighting)]
        label = sighting.path if sighting.wanted else sighting.family
        cursor = self._beginning(sighting, label, now)
        if last is not None and last.offset:
            identity = identify(sighting.key.inode, stranger.head[: last.offset], last.tail)
            cursor = replace(cursor, offset=last.offset, identity=identity)
        tailer = Tailer(cursor, sighting, stranger.head, last.tail if last else b"", now)
        self._follow(tailer, index)
        return self._past_hole(tailer, stranger) or [sentences.begun(sighting, cursor.offset)]

    def _beginning(self, sighting: Sighting, label: str, now: int) -> Cursor:
        identity = identify(sighting.key.inode, b"", b"")
        return Cursor(self._new_id(), label, 0, identity, now)

    def _follow(self, tailer: Tailer, index: Index) -> None:
        self.tailers[tailer.sighting.key] = tailer
        self._copies.forget(tailer.sighting.key)
        index.tailers[tailer.sighting.family].append(tailer)

    def _note_copy(self, stranger: Stranger) -> None:
        live = self._shown.live.get(stranger.sighting.family)
        if live is not None and (original := self.tailers.get(live.key)) is not None:
            self._copies.note(stranger.sighting.key, stranger.head, original.file)

    def _go_on(self, cursor: Cursor, stranger: Stranger, index: Index, now: int) -> list[Notice]:
        if self.memory.cursors.pop(cursor.file, None) is None:
            return []  # another copy was first
        tail = stranger.tails.get(cursor.file, b"")
        sighting = stranger.sighting
        tailer = Tailer(cursor, sighting, stranger.head, tail, now)
        self._follow(tailer, index)
        self._holes.moved(cursor, sighting.key)
        return self._past_hole(tailer, stranger) or [sentences.goes_on(sighting, cursor.offset)]

    def _past_hole(self, tailer: Tailer, stranger: Stranger) -> list[Notice]:
        if tailer.offset or not (start := self._start_of(stranger)):
            return []
        tailer.skip_hole(start)
        return [sentences.hole(tailer.sighting, start)]

    def _start_of(self, stranger: Stranger) -> int:
        return self._holes.start_of(stranger, self.memory.cursors.values())

    def _remember(self, key: FileKey) -> Tailer:
        tailer = self.tailers.pop(key)
        self.memory.take(tailer)
        return tailer
