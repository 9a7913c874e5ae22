"""The file catalogue: which files are followed, which are only remembered, and what every newly found file is.

A file is followed by a tailer (by device and inode), remembered by its cursor (by file id) when it is followed no longer,
or left as it was seen (by device and inode): the copy of another one, older than our time, or useless. Memory only; touches
no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from nats_logship.app.text import format_count
from nats_logship.wire.positions import Cursor
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import FilePresence, Known, Sample, Verdict, identify, rule
from shipper.sources.files.losses import Unfound, sibling_losses, unfound_losses
from shipper.sources.files.paths import Selection, group_of
from shipper.sources.files.scan import Archive, FileEntry, FileKey, Scan
from shipper.sources.files.succession import (
    arrange,
    chains_of,
    is_newer,
    is_newer_by_name,
    oldest_first,
)
from shipper.sources.notices import Notice, NoticeKind

_CLOCK_SLACK = 20_000_000
"""Nanoseconds that a file's time of change may lie behind the clock: the kernel stamps files by its tick."""
_KEPT = 7 * 86_400 * 1_000_000_000  # nanoseconds
_KEPT_BY_PATH = 64


def find_forgettable(cursors: Iterable[Cursor], now: int) -> list[Cursor]:
    """Return those that were not read for 7 days and, of one path, all but the 64 that were read last.

    `now` is in nanoseconds. They may go once their file is gone: the stream, which is kept for a day, could not bring them
    back. A folder that is not mounted for a while loses nothing by it, however many files it has.
    """
    by_path: defaultdict[str, list[Cursor]] = defaultdict(list)
    for cursor in cursors:
        by_path[cursor.path].append(cursor)
    found = []
    for same in by_path.values():
        same.sort(key=lambda cursor: cursor.seen, reverse=True)
        found += same[_KEPT_BY_PATH:]
        found += [cursor for cursor in same[:_KEPT_BY_PATH] if now - cursor.seen > _KEPT]
    return found


class Catalogue:
    """The files that one follower knows; `chains` holds its tailers by group, oldest first.

    `lives` are the live paths whose rotated siblings are looked for; `notices` is what there is to say, until it is taken.
    `scanned_at` is when the last scan began of which all was decided, None before the first one of a selection.
    `ended` are the ids of the files of which nothing more is expected, or the loss was reported.
    """

    def __init__(
        self, selection: Selection, known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.tailers: dict[FileKey, FollowedFile] = {}
        self.chains: Mapping[str, list[FollowedFile]] = {}
        self.lives: dict[str, None] = {}
        self.notices: list[Notice] = []
        self.ended: set[str] = set()
        self._new_id = new_id
        self._remembered = {cursor.file: cursor for cursor in known}
        # when files were read last that were written anew in place since, and may look like what is there now
        self._replaced: dict[str, int] = {}
        self._left: dict[FileKey, Sample] = {}
        self._moved: dict[str, str] = {}  # live paths as they would be in folders of rotated files
        self._files: dict[FileKey, FileEntry] = {}
        self._archives: Sequence[Archive] = ()
        self.scanned_at: int | None = None
        self.retarget(selection)

    # what a scan showed

    def scanned(self, scan: Scan, now: int) -> None:
        """Take note of a scan."""
        self._files = {}
        self._archives = scan.archives
        # links show a file at several paths: the first one counts
        for shown in sorted(
            scan.entries, key=lambda one: (not one.is_live, not one.wanted, one.path)
        ):
            self._files.setdefault(shown.key, shown)
        wanted = (entry.path for entry in self._files.values() if entry.wanted)
        self.lives |= dict.fromkeys(wanted)
        for tailer in self._seen():
            entry, before = self._files[tailer.entry.key], tailer.entry.path
            home = self._home(tailer.label, entry)
            has_moved = entry.path != home
            if entry.size and has_moved and not (tailer.is_known or tailer.is_open):
                # nothing but its inode is known, which may be another file's
                self.leave(tailer)
                continue
            tailer.scanned(entry, home, now)
            self._note_folder(tailer)
            if entry.path != before:
                self.tell(NoticeKind.ROTATED, before, f"is now {entry.path}")

    def _note_folder(self, tailer: FollowedFile) -> None:
        path, home = tailer.entry.path, tailer.home
        moved = f"{path.rpartition('/')[0]}/{home.rpartition('/')[2]}"
        # a pattern may show the folder of rotated files, too; what is not named like one is live
        if not tailer.entry.wanted or group_of(path, {moved}) == moved:
            self._moved[moved] = home

    def _home(self, label: str, entry: FileEntry) -> str:
        """Return the live path that a file of this label was rotated from, wherever it is now."""
        home = group_of(label, self.lives)
        return home if home in self.lives else entry.group

    def places(self) -> dict[str, str]:
        """Return the paths whose rotated siblings are looked for, each with its group.

        Those are the live paths, and what they would be called in the folders that files of theirs
        were moved to.
        """
        own = {path: path for path in self.lives}
        return {**own, **{path: home for path, home in self._moved.items() if path not in own}}

    def sought(self, shown: Iterable[FileEntry]) -> dict[int, str]:
        """Return the inodes to look for beyond what is shown, each with the live path of its file.

        Those are the followed ones that have a name somewhere, and before the first scan those that
        are remembered; the inode of one of these may be another file's by now.
        """
        there = {entry.key.inode for entry in shown}
        found: dict[int, str] = {}
        if self.scanned_at is None:
            for cursor in self._remembered.values():
                home, inode = group_of(cursor.path, self.lives), cursor.identity.inode
                if home in self.lives and not (cursor.ended and inode in there):
                    found[inode] = home
        for tailer in self.tailers.values():
            if tailer.is_linked and (inode := tailer.entry.key.inode) not in there:
                found[inode] = tailer.home
        return found

    def to_sample(self) -> dict[FileEntry, Collection[Cursor]]:
        """Return which files must be sampled before `settle`, with the cursors that they may hold."""
        seen = self._seen()
        # a file that has just gone may have been truncated before; the next scan knows
        held = [t for t in self.unseen() if t.unseen_since is not None and t.is_open]
        are_read = {tailer.file for tailer in (*seen, *held) if not tailer.suspect}
        asked = [
            entry
            for key, entry in self._files.items()
            if key not in self.tailers and not self._is_left(entry, are_read)
        ]
        asked += [t.entry for t in seen if t.suspect or (t.entry.size and not t.is_known)]
        if not asked:
            return {}
        groups = {entry.group for entry in asked}
        # a candidate may be the copy of any file of its group that was truncated, as no compressed one is
        asked += [t.entry for t in seen if t.entry.group in groups and t.entry.compression is None]
        self._index()
        near: dict[FileEntry, Collection[Cursor]] = {}
        for entry in asked:
            cursors = [known.cursor for known in self._known(entry.group)]
            near[entry] = {*cursors, *self._by_inode[entry.key.inode]}
        return near

    def unseen(self, held: Container[str] = ()) -> list[FollowedFile]:
        """Return the followed files that the last scan did not show, but for those of some groups."""
        unseen = (tailer for key, tailer in self.tailers.items() if key not in self._files)
        return [tailer for tailer in unseen if tailer.entry.group not in held]

    def leave(self, tailer: FollowedFile) -> None:
        """Stop following a file; its cursor is remembered, should it come back, unless nothing but an inode is known of it."""
        del self.tailers[tailer.entry.key]
        if tailer.is_another:
            self._replaced[tailer.file] = tailer.seen
        elif tailer.is_known:
            self._remembered[tailer.file] = tailer.last

    def begin_anew(self, tailer: FollowedFile, seen: Sample, now: int) -> FollowedFile:
        """Follow a deleted file that is open as another one, since it was truncated and written anew."""
        self.leave(tailer)
        self._tell_truncated([tailer])
        identity = identify(seen.entry.key.inode, b"", b"")
        self._follow(seen, Cursor(self._new_id(), tailer.label, 0, identity, now), now)
        anew = self.tailers[seen.entry.key]
        anew.unseen_since = tailer.unseen_since
        return anew

    def settle(
        self,
        samples: Iterable[Sample],
        held: Collection[str],
        now: int,
        stored: Callable[[str], int],
    ) -> None:
        """Decide what the files that were sampled are, and follow those that are to be followed.

        Nothing is decided about the groups that are `held`, of which files moved during the scan. `stored` returns up to
        which byte a file is stored, by id; 0 once its position is forgotten.
        """
        found = [self._candidate(seen) for seen in samples if seen.entry.group not in held]
        truncated = self._check_followed(found, now)
        groups = defaultdict(list)
        for seen in found:
            if seen.entry.key not in self.tailers:
                groups[seen.entry.group].append(seen)
        if groups:
            self._index()
        for name, candidates in groups.items():
            self._settle_group(name, candidates, {tailer.file for tailer in truncated}, now)
        self._tell_truncated(truncated)
        self._order()
        if not held:  # or it would be their cursors that seem to be without a file
            there = self._files.keys() | self.tailers.keys()
            self._left = {key: seen for key, seen in self._left.items() if key in there}
            if self.scanned_at is None:
                self._report_losses({seen.entry.key.inode for seen in found})
            self.scanned_at = now  # what is older, and not known by now, was there before us
            self._forget(now, stored)

    def tell(self, kind: NoticeKind, path: str, text: str, lost: int = 0) -> None:
        """Have something said."""
        self.notices.append(Notice(kind, path, text, lost))

    # what is to be followed

    def retarget(self, selection: Selection, known: Cursor | None = None) -> None:
        """Follow another selection: let go of the files of which it shows no part; with `known`, forget all files but that."""
        if known is not None:
            self._remembered = {known.file: known}
            self.lives.clear()
            self.tailers.clear()
        for tailer in list(self.tailers.values()):
            path, is_shown = tailer.entry.path, selection.shows
            if selection.excludes_file(path) or not (
                is_shown(path) or is_shown(tailer.entry.group)
            ):
                self.leave(tailer)
        self._left = {key: seen for key, seen in self._left.items() if seen.copy_of}
        self.scanned_at = None
        self._selection = selection
        paths = [*self.lives, *(cursor.path for cursor in self._remembered.values())]
        self.lives = dict.fromkeys(path for path in paths if selection.shows(path))
        self._order()

    def rewind(self, cursors: Mapping[str, Cursor], now: int) -> bool:
        """Read every followed file on from its cursor, or from where it was begun; remember no other cursors but these.

        Returns False, and does nothing, where one is of a file that is not known.
        """
        followed = {tailer.file for tailer in self.tailers.values()}
        known = followed | self._remembered.keys() | self._replaced.keys()
        if any(cursor.offset and cursor.file not in known for cursor in cursors.values()):
            return False
        for tailer in self.tailers.values():
            tailer.rewind(cursors.get(tailer.file, tailer.start), now)
        others = cursors.keys() - followed - self._replaced.keys()
        self._remembered = {file: cursors[file] for file in others}
        return True

    def _order(self) -> None:
        """Put the followed files into chains; one at another live path joins the chains of both."""
        chains = chains_of((one.home, one.entry.group) for one in self.tailers.values())
        turns = {one.file: one.turn for chain in self.chains.values() for one in chain}
        found = defaultdict(list)
        for tailer in self.tailers.values():
            if tailer.turn is None:  # a copy has the place of its original
                tailer.turn = turns.get(tailer.file)
            if tailer.chain != chains[tailer.home] and tailer.is_fresh:
                tailer.turn = None  # it was in another chain
            tailer.chain = chains[tailer.home]
            found[tailer.chain].append(tailer)
        self.chains = {name: arrange(chain) for name, chain in found.items()}
        for number, tailer in enumerate(one for chain in self.chains.values() for one in chain):
            # it may have been empty, written, copied and truncated before it is seen again
            tailer.turn = number if tailer.beginning else None

    # what is known

    def _seen(self) -> list[FollowedFile]:
        return [tailer for key, tailer in self.tailers.items() if key in self._files]

    def _is_left(self, entry: FileEntry, are_read: Container[str]) -> bool:
        # not sampled until it changes or, as a compressed copy, its original is read no longer
        left = self._left.get(entry.key)
        if left is None or entry.differs(left.entry) or entry.is_sought < left.entry.is_sought:
            return False
        return left.copy_of is None or (entry.compression is not None and left.copy_of in are_read)

    def _index(self) -> None:
        """Sort what is known: by group, and what is only remembered by inode as well."""
        tailers, by_group, by_inode = defaultdict(list), defaultdict(list), defaultdict(list)
        for tailer in self.tailers.values():
            # where another file got its inode, its own group may show a copy; its live path may
            # have come since it was seen
            home = self._home(tailer.label, tailer.entry)
            for group in {tailer.entry.group, tailer.home, home}:
                tailers[group].append(tailer)
        for cursor in self._remembered.values():
            by_group[group_of(cursor.path, self.lives)].append(cursor)
            by_inode[cursor.identity.inode].append(cursor)
        self._followed_in, self._remembered_in, self._by_inode = tailers, by_group, by_inode
        self._there = {(entry.group, key.inode) for key, entry in self._files.items()}

    def _known(self, group: str) -> list[Known]:
        """Return the files that are known of a group."""
        known = []
        for tailer in self._followed_in[group]:
            is_seen = tailer.entry.key in self._files
            presence = FilePresence.FOLLOWED if is_seen else FilePresence.DELETED
            known.append(Known(tailer.last, presence))
        for cursor in self._remembered_in[group]:
            is_there = (group, cursor.identity.inode) in self._there
            presence = FilePresence.TRUNCATED if is_there else FilePresence.GONE
            if cursor.file in self._remembered:
                known.append(Known(cursor, presence))
        return known

    # what the sampled files are

    def _candidate(self, seen: Sample) -> Sample:
        left = self._left.get(seen.entry.key)
        # its inode may be another's, and it may have grown
        copy_of = left.copy_of if left and seen.head.startswith(left.head) else None
        # a renamed file may have been asked for as it was
        return replace(seen, entry=self._files[seen.entry.key], copy_of=copy_of)

    def _check_followed(self, found: Iterable[Sample], now: int) -> list[FollowedFile]:
        """Stop to follow, and return, those that were truncated or written anew."""
        truncated = []
        for seen in found:
            tailer = self.tailers.get(seen.entry.key)
            if tailer is None:
                continue
            is_same = seen.has_all(tailer.cursor) and seen.head.startswith(tailer.beginning)
            tailer.is_another &= is_same  # else a copy may have its rest
            if is_same and not tailer.is_another:
                tailer.recognised(seen, now)
            else:
                self.leave(tailer)
                truncated.append(tailer)
        return truncated

    def _tell_truncated(self, truncated: Iterable[FollowedFile]) -> None:
        read_in = {tailer.file: tailer.entry.path for tailer in self.tailers.values()}
        for tailer in truncated:
            lost = tailer.end - tailer.offset
            seen = format_count(lost, "byte", "were")
            text = f"was truncated or written anew; {seen} seen in it and not read"
            if tailer.file in read_in:
                text, lost = f"was truncated; its rest is read from {read_in[tailer.file]}", 0
            self.tell(NoticeKind.TRUNCATED, tailer.entry.path, text, lost)
            self.ended.add(tailer.file)

    def _settle_group(
        self, name: str, candidates: list[Sample], truncated: Container[str], now: int
    ) -> None:
        # the live one first, then the oldest
        live = [seen for seen in candidates if seen.entry.is_live]
        rest = []
        rotated = oldest_first(seen for seen in candidates if not seen.entry.is_live)
        for seen in (*live, *rotated):
            if cursor := self._recognise(seen, truncated):
                self._go_on(seen, cursor, now)
            else:
                rest.append(seen)
        known = self._known(name)
        newest = self._newest([one.cursor for one in known])
        # what is new in a group that we know comes after lines that we shipped, or would have
        rest = [replace(seen, last=(0, b"")) if known else seen for seen in rest]
        # copies of what we know first: whether another file is new is told by its place among them
        is_copy = {Verdict.INHERIT, Verdict.COPY}
        copies = [seen for seen in rest if rule(seen, known, is_new=False)[0] in is_copy]
        for seen in (*copies, *(seen for seen in rest if seen not in copies)):
            is_new = seen.entry.wanted or self._is_younger(seen.entry)
            is_new |= newest is not None and seen.entry.modified + _CLOCK_SLACK >= newest
            self._act(seen, *rule(seen, known, is_new=is_new), now)

    def _recognise(self, seen: Sample, truncated: Container[str]) -> Cursor | None:
        """Return the cursor of the remembered file that a file is, by its inode."""
        same = [
            cursor
            for cursor in self._by_inode[seen.entry.key.inode]
            # its inode alone may be another file's soon; and the file on that of a truncated one is another
            if (cursor.offset or cursor.identity.head_length) and cursor.file not in truncated
            if seen.has_all(cursor)
        ]
        best = max(same, key=lambda cursor: (cursor.offset, cursor.seen), default=None)
        for other in same:
            # an agent found the same file and read nothing of it, or the file was written anew in
            # place since: a copy would be taken for its file
            if best and other is not best:
                self.ended.add(other.file)
                if other.path == best.path:
                    self._remembered.pop(other.file, None)
                    self._replaced[other.file] = other.seen
        return best

    def _newest(self, cursors: Collection[Cursor]) -> int | None:
        # a backlog may be read long after its successor was written and rotated, but not before the last scan
        times = [] if self.scanned_at is None else [self.scanned_at]
        # nor before a file was found; that counts only when none was read, since a copy of its lines may be older
        read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
        return min([*times, max(read)] if read else times, default=None)

    def _is_younger(self, entry: FileEntry) -> bool:
        """Whether a rotated file of its group is followed, or was, that is older."""
        rotated = (one for one in self._followed_in[entry.group] if one.is_rotated)
        seen = (one.entry for one in rotated if one.entry.key in self._files)
        copies = (one.entry for one in self._left.values() if one.copy_of is not None)
        return any(is_newer(entry, one) for one in seen) or any(
            one.group == entry.group and is_newer_by_name(entry, one) for one in copies
        )

    def _act(self, seen: Sample, verdict: Verdict, cursor: Cursor | None, now: int) -> None:
        self._left.pop(seen.entry.key, None)
        match verdict:
            case Verdict.INHERIT if cursor is not None:
                self._go_on(seen, cursor, now)
            case Verdict.BEGIN:
                self._begin(seen, now)
            case Verdict.COPY:
                self._leave_copy(seen, cursor)
            case Verdict.DAMAGED:
                text = f"is damaged ({seen.damage}): what was not read before is lost"
                self.tell(NoticeKind.DAMAGED, seen.entry.path, text)
                self._leave_alone(seen)
            case Verdict.OLD:
                known = (one.cursor for one in self._known(seen.entry.group))
                self.notices += sibling_losses(seen.entry, known)
                self._leave_alone(seen)
            case _:
                self._leave_alone(seen)

    def _leave_alone(self, seen: Sample) -> None:
        self._left[seen.entry.key] = replace(seen, head=b"", held={}, copy_of=None)

    def _leave_copy(self, seen: Sample, cursor: Cursor | None) -> None:
        group = self._followed_in[seen.entry.group]
        live = (one.file for one in group if one.entry.path == seen.entry.group)
        original = cursor.file if cursor else next(live, None)
        if seen.entry.compression is None and seen.copy_of is not None:
            original = seen.copy_of  # which may have been truncated since
        if original is not None:
            self._left[seen.entry.key] = replace(seen, held={}, copy_of=original)

    def _go_on(self, seen: Sample, cursor: Cursor, now: int) -> None:
        if self._remembered.pop(cursor.file, None) is None:
            return  # another copy was first
        self._left.pop(seen.entry.key, None)
        self._follow(seen, cursor, now)

    def _begin(self, seen: Sample, now: int) -> None:
        entry, (offset, tail) = seen.entry, seen.last
        if self._selection.is_too_old(entry.modified, now):
            self._leave_alone(seen)
            text = "was not written for longer than --ignore-older; it is followed once it is"
            self.tell(NoticeKind.AGED, entry.path, text)
            return
        label = entry.path if entry.wanted else entry.group
        identity = identify(entry.key.inode, seen.head[:offset], tail)
        cursor = Cursor(self._new_id(), label, offset, identity, now)
        self._follow(seen, cursor, now)
        self.tailers[entry.key].is_fresh = True

    def _follow(self, seen: Sample, cursor: Cursor, now: int) -> None:
        tailer = FollowedFile(cursor, seen, self._home(cursor.path, seen.entry), now)
        self._note_folder(tailer)
        self.tailers[seen.entry.key] = tailer
        self._followed_in[seen.entry.group].append(tailer)
        self.tell(NoticeKind.FOUND, seen.entry.path, f"is followed from byte {cursor.offset}")

    def _report_losses(self, sampled: Container[int]) -> None:
        """Report, after the first scan, what is known and was not found."""
        self._index()
        there = {key.inode for key in self._files}
        copied = {seen.copy_of for seen in self._left.values()}
        unfound = []
        for group, cursors in self._remembered_in.items():
            for cursor in cursors if group in self.lives else ():
                inode, is_known = (
                    cursor.identity.inode,
                    cursor.offset or cursor.identity.head_length,
                )
                # one that is there and was not sampled may not be read now, as is reported
                is_hidden = inode in there and inode not in sampled
                if is_known and not (
                    is_hidden or cursor.ended or cursor.file in self.ended | copied
                ):
                    unfound.append(Unfound(cursor, group))
        left = [seen.entry for seen in self._left.values() if seen.copy_of is None and seen.size]
        self.notices += unfound_losses(unfound, left, self._archives)
        self.ended |= {one.cursor.file for one in unfound}

    def note_ended(self, ended: Collection[str]) -> None:
        """Take note of which of the followed files nothing more is expected now."""
        self.ended -= {tailer.file for tailer in self.tailers.values()}
        self.ended |= set(ended)

    def _forget(self, now: int, stored: Callable[[str], int]) -> None:
        """Forget what is long gone; what has a position may have to be gone back to."""
        remembered = self._remembered
        replaced = self._replaced.items()
        self._replaced = {
            file: seen for file, seen in replaced if now - seen <= _KEPT or stored(file)
        }
        for cursor in find_forgettable((c for c in remembered.values() if not stored(c.file)), now):
            del remembered[cursor.file]
        self.ended &= remembered.keys() | {tailer.file for tailer in self.tailers.values()}
        there = {entry.path for entry in self._files.values() if entry.wanted}
        homes = {path for one in self.tailers.values() for path in (one.home, one.entry.group)}
        kept = there | homes | {known.path for known in remembered.values()}
        self.lives = {path: None for path in self.lives if path in kept}
        self._moved = {path: home for path, home in self._moved.items() if home in self.lives}
