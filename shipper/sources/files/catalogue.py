"""The files that one follower knows: followed, left, or only remembered; does what `decide` decides.

A file is followed, or left as it was seen, by device and inode. The cursor of a remembered file is
kept by file id. Memory only; touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import format_time
from nats_logship.wire.positions import Cursor
from shipper.sources.files.decide import (
    Action,
    Compared,
    Decision,
    Event,
    FileState,
    Known,
    Presence,
    Sampled,
    Seen,
    Unrecognised,
    Unseen,
    decide,
)
from shipper.sources.files.entry import FileEntry, FileKey, UnreadableSibling
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.forgetting import LONGEST_KEPT, find_forgettable
from shipper.sources.files.identity import Sample, identify
from shipper.sources.files.losses import Unfound, sibling_losses, unfound_losses
from shipper.sources.files.paths import Selection, group_of
from shipper.sources.files.reading import Reading
from shipper.sources.files.scan import Scan
from shipper.sources.files.succession import (
    arrange,
    chains_of,
    is_newer,
    is_newer_by_name,
    oldest_first,
)
from shipper.sources.notices import Notice, NoticeKind

_CLOCK_SLACK = 20_000_000
"""Nanoseconds by which a file's time may be behind the clock: the kernel stamps files by its tick."""


class Catalogue:
    """The files that one follower knows.

    `files` are the followed ones. `chains` holds their keys by chain, oldest first, and `chain_of`
    the chain of each. `live_paths` are those whose rotated siblings are looked for. `notices` are
    the reports that nobody took yet. `ended` are the ids of files of which nothing more is
    expected, or whose loss was reported. `scanned_at` is when the last scan began after which all
    files were decided on; None before the first one of a selection.
    """

    def __init__(
        self, selection: Selection, known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.files: dict[FileKey, FollowedFile] = {}
        self.chains: Mapping[str, list[FileKey]] = {}
        self.chain_of: dict[FileKey, str] = {}
        self.live_paths: dict[str, None] = {}
        self.notices: list[Notice] = []
        self.ended: set[str] = set()
        self.scanned_at: int | None = None
        self._new_id = new_id
        self._remembered = {cursor.file: cursor for cursor in known}
        self._replaced: dict[str, int] = {}  # when the files were read last, by id
        self._left: dict[FileKey, Sample] = {}
        self._ranks: dict[str, int] = {}  # places in the order of reading, by file id
        self._moved: dict[str, str] = {}  # live paths as they would be in folders of rotated files
        self._entries: dict[FileKey, FileEntry] = {}
        self._archives: Sequence[UnreadableSibling] = ()
        self.retarget(selection)
        self._index()

    def report(self, kind: NoticeKind, path: str, text: str, lost: int = 0) -> None:
        """Add a notice."""
        self.notices.append(Notice(kind, path, text, lost))

    def keep(self, file: FollowedFile) -> None:
        """Keep the newest value of a followed file."""
        self.files[file.entry.key] = file

    def _note_state(self, file: FollowedFile, state: FileState) -> None:
        """Keep a file where its new state belongs."""
        if state is FileState.REPLACED:
            del self.files[file.entry.key]
            self._replaced[file.file] = file.progress.seen
        elif state is FileState.REMEMBERED:
            del self.files[file.entry.key]
            if file.progress.is_known:
                self._remembered[file.file] = file.progress.last
        else:
            self.keep(file if file.state is state else file._replace(state=state))

    # what a scan showed

    def note_scan(self, scan: Scan, now: int, is_open: Container[FileKey]) -> list[FollowedFile]:
        """Note what a scan saw; return files that may be rewritten in place and are at rest now."""
        self._archives = scan.archives
        self._entries = {}
        # links show a file at several paths: the first one counts
        for entry in sorted(
            scan.entries, key=lambda one: (not one.is_live, not one.wanted, one.path)
        ):
            self._entries.setdefault(entry.key, entry)
        wanted = (entry.path for entry in self._entries.values() if entry.wanted)
        self.live_paths |= dict.fromkeys(wanted)
        touched = []
        for file in self._seen():
            entry, key = self._entries[file.entry.key], file.entry.key
            home = self._home(file.progress.label, entry)
            if entry.size and entry.path != home and not (file.progress.is_known or key in is_open):
                self._note_state(file, decide(file.state, Event.MOVED).state)
                continue
            is_shorter = entry.compression is None and entry.size < file.size
            is_doubtful = is_shorter or (key not in is_open and entry.differs(file.entry))
            state = decide(file.state, Seen(is_doubtful)).state
            seen = file.seen_at(entry, home, state, now)
            self.keep(seen)
            self._note_folder(seen)
            if entry.path != file.entry.path:
                self.report(NoticeKind.ROTATED, file.entry.path, f"is now {entry.path}")
            if file.is_touched and entry.modified == file.modified:
                touched.append(seen)
        return touched

    def note_comparison(self, file: FollowedFile, is_same: bool) -> None:
        """Note whether a file, as far as its content is known, has what was read of it."""
        decision = decide(file.state, Compared(is_same))
        self._note_state(file._replace(is_touched=False), decision.state)
        # an end that is allocated beforehand is overwritten, or cut off, without a report
        if Action.REPORT_TOUCHED in decision.actions and not file.was_padded:
            known = f"the same {file.progress.content.length} first bytes"
            text = f"was touched, or written again with {known}: not shipped again"
            self.report(NoticeKind.CONTENT, file.entry.path, text)

    def unseen(self, undecided: Container[str] = ()) -> list[FollowedFile]:
        """Return the followed files that the last scan did not see, but for those of some groups."""
        unseen = (file for key, file in self.files.items() if key not in self._entries)
        return [file for file in unseen if file.entry.group not in undecided]

    def note_unseen(
        self, file: FollowedFile, unseen: Unseen, beginning: Reading | None, now: int
    ) -> None:
        """Note that a scan saw a file at no path, and what it begins with if it is open."""
        decision = decide(file.state, unseen)
        self._note_state(file, decision.state)
        match decision.actions:
            case (Action.READ,):
                if file.entry.compression is None:
                    self.keep(self.files[file.entry.key].marked(now))
            case (Action.FOLLOW_REWRITTEN,) if beginning is not None:
                self._follow_rewritten(file, beginning, now)
            case (Action.REPORT_EXPIRED,):
                how = "moved out of sight" if file.is_linked else "deleted"
                since = format_time(file.unseen_since or now, "seconds")
                self._report_gone(file, f"was {how} before {since} and is held open no longer")
            case _:
                self._report_gone(file, "is gone")

    def leave_out(self, file: FollowedFile) -> None:
        """Stop following a file that is not selected any more; its cursor is remembered."""
        self._note_state(file, decide(file.state, Event.LEFT_OUT).state)

    def _report_gone(self, file: FollowedFile, how: str) -> None:
        lost, what = file.end - file.offset, "read to its end"
        if lost:
            what = f"bytes {file.offset} to {file.end} were not read"
        self.ended.add(file.file)
        self.report(NoticeKind.GONE, file.entry.path, f"{how}, {what}", lost)

    def _follow_rewritten(self, file: FollowedFile, beginning: Reading, now: int) -> None:
        """Follow what was written to a deleted file after its truncation, as another file."""
        self._report_truncated([file])
        key = file.entry.key
        identity = identify(key.inode, b"", b"")
        sample = Sample(file.entry, beginning.size, beginning.run, {})
        self._follow(sample, Cursor(self._new_id(), file.progress.label, 0, identity, now), now)
        rewritten = self.files[key]
        self.keep(rewritten._replace(unseen_since=file.unseen_since, state=FileState.DELETED))

    # what is to be sampled

    def places(self) -> dict[str, str]:
        """Return the paths whose rotated siblings are looked for, each with its group.

        Those are the live paths, and their names in the folders that rotated files were moved to.
        """
        own = {path: path for path in self.live_paths}
        return {**own, **{path: home for path, home in self._moved.items() if path not in own}}

    def sought(self, shown: Iterable[FileEntry]) -> dict[int, str]:
        """Return the inodes to look for beyond the files shown, each with its file's live path.

        Those are the followed files that have a name somewhere, and before the first scan the
        remembered ones; the inode of one of these may be another file's by now.
        """
        there = {entry.key.inode for entry in shown}
        found: dict[int, str] = {}
        if self.scanned_at is None:
            for cursor in self._remembered.values():
                home, inode = group_of(cursor.path, self.live_paths), cursor.identity.inode
                if home in self.live_paths and not (cursor.ended and inode in there):
                    found[inode] = home
        for key, file in self.files.items():
            if file.is_linked and key.inode not in there:
                found[key.inode] = file.home
        return found

    def to_sample(self, is_open: Container[FileKey]) -> dict[FileEntry, Collection[Cursor]]:
        """Return the files to sample before `settle`, each with the cursors that may fit it."""
        seen = self._seen()
        # a file that has just gone may have been truncated before; the next scan knows
        held = [
            file
            for file in self.unseen()
            if file.unseen_since is not None and file.entry.key in is_open
        ]
        are_read = {file.file for file in (*seen, *held) if not file.is_doubtful}
        asked = [
            entry
            for key, entry in self._entries.items()
            if key not in self.files and not self._is_left(entry, are_read)
        ]
        asked += [
            file.entry
            for file in seen
            if file.is_doubtful or (file.entry.size and not file.progress.is_known)
        ]
        if not asked:
            return {}
        groups = {entry.group for entry in asked}
        # a file that was found may be the copy of any file of its group that was truncated, which
        # no compressed file is
        asked += [
            file.entry
            for file in seen
            if file.entry.group in groups and file.entry.compression is None
        ]
        self._index()
        near: dict[FileEntry, Collection[Cursor]] = {}
        for entry in asked:
            cursors = [known.cursor for known in self._known(entry.group)]
            near[entry] = {*cursors, *self._by_inode[entry.key.inode]}
        return near

    # what the sampled files are

    def settle(
        self,
        samples: Iterable[Sample],
        undecided: Collection[str],
        now: int,
        stored: Callable[[str], int],
    ) -> None:
        """Decide what the sampled files are, and follow those that are to be followed.

        Nothing is decided about the `undecided` groups, whose files moved during the scan.
        `stored` returns up to which byte a file is stored, by id; 0 if its position is forgotten.
        """
        found = [self._candidate(one) for one in samples if one.entry.group not in undecided]
        truncated = self._check_followed(found, now)
        groups = defaultdict(list)
        for sample in found:
            if sample.entry.key not in self.files:
                groups[sample.entry.group].append(sample)
        if groups:
            self._index()
        for name, candidates in groups.items():
            self._settle_group(name, candidates, {file.file for file in truncated}, now)
        self._report_truncated(truncated)
        self._order()
        if not undecided:  # or the cursors of those groups would seem to be without a file
            there = self._entries.keys() | self.files.keys()
            self._left = {key: sample for key, sample in self._left.items() if key in there}
            if self.scanned_at is None:
                self._report_losses({sample.entry.key.inode for sample in found})
            self.scanned_at = now  # older files that are unknown by now were there before us
            self._forget(now, stored)

    def _candidate(self, sample: Sample) -> Sample:
        left = self._left.get(sample.entry.key)
        # its inode may be another file's, and it may have grown
        copy_of = left.copy_of if left and sample.head.startswith(left.head) else None
        # a renamed file may have been asked for at the path before
        return replace(sample, entry=self._entries[sample.entry.key], copy_of=copy_of)

    def _check_followed(self, found: Iterable[Sample], now: int) -> list[FollowedFile]:
        """Return the followed files that were truncated or rewritten; they are followed no more."""
        truncated = []
        for sample in found:
            file = self.files.get(sample.entry.key)
            if file is None:
                continue
            has_all = sample.has_all(file.progress.cursor) and sample.head.startswith(
                file.progress.beginning
            )
            decision = decide(file.state, Sampled(has_all))
            if Action.CONFIRM in decision.actions:
                file = file.confirmed(sample, now)
            else:
                truncated.append(file)
            self._note_state(file, decision.state)
        return truncated

    def _report_truncated(self, truncated: Iterable[FollowedFile]) -> None:
        read_in = {file.file: file.entry.path for file in self.files.values()}
        for file in truncated:
            lost = file.end - file.offset
            unread = format_count(lost, "byte", "were")
            text = f"was truncated or written anew; {unread} seen in it and not read"
            if file.file in read_in:
                text, lost = f"was truncated; its rest is read from {read_in[file.file]}", 0
            self.report(NoticeKind.TRUNCATED, file.entry.path, text, lost)
            self.ended.add(file.file)

    def _settle_group(
        self, name: str, candidates: list[Sample], truncated: Container[str], now: int
    ) -> None:
        # all of a group are recognised by inode before the others are compared with the group:
        # the live file first, then the oldest
        live = [sample for sample in candidates if sample.entry.is_live]
        rest = []
        rotated = oldest_first(sample for sample in candidates if not sample.entry.is_live)
        for sample in (*live, *rotated):
            same = self._same_inode(sample, truncated)
            decision = decide(FileState.FOUND, Sampled(remembered=same))
            if decision.cursor is None:
                rest.append(sample)
            else:
                self._supersede(same, decision.cursor)
                self._inherit(sample, decision.cursor, now)
        known = self._known(name)
        newest = self._newest([one.cursor for one in known])
        # a new file of a group that we know comes after lines that we shipped, or would have
        rest = [replace(sample, last=(0, b"")) if known else sample for sample in rest]
        # copies of known files first: their places say whether another file is new
        copies = [sample for sample in rest if _is_copy(sample, known)]
        for sample in (*copies, *(sample for sample in rest if sample not in copies)):
            is_new = sample.entry.wanted or self._is_younger(sample.entry)
            is_new |= newest is not None and sample.entry.modified + _CLOCK_SLACK >= newest
            is_too_old = self._selection.is_too_old(sample.entry.modified, now)
            observation = Unrecognised(sample, is_new, is_too_old)
            self._act(sample, decide(FileState.FOUND, observation, known), now)

    def _same_inode(self, sample: Sample, truncated: Container[str]) -> list[Cursor]:
        """Return the cursors of remembered files that had its inode, and whose bytes it has."""
        return [
            cursor
            for cursor in self._by_inode[sample.entry.key.inode]
            # its inode alone may soon be another file's; a file on that of a truncated one is another
            if (cursor.offset or cursor.identity.head_length) and cursor.file not in truncated
            if sample.has_all(cursor)
        ]

    def _supersede(self, same: Iterable[Cursor], best: Cursor) -> None:
        """Forget cursors of the same file: a copy would be taken for it.

        An agent found the file and read nothing of it, or the file was rewritten in place since.
        """
        for other in same:
            if other is not best:
                self.ended.add(other.file)
                if other.path == best.path:
                    self._remembered.pop(other.file, None)
                    self._replaced[other.file] = other.seen

    def _newest(self, cursors: Collection[Cursor]) -> int | None:
        # a backlog may be read long after its successor was written and rotated, but not before
        # the last scan
        times = [] if self.scanned_at is None else [self.scanned_at]
        # nor before a file was found; that counts only if none was read, since a copy of its lines
        # may be older
        read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
        return min([*times, max(read)] if read else times, default=None)

    def _is_younger(self, entry: FileEntry) -> bool:
        """Whether a rotated file of its group is followed, or was, that is older."""
        followed = (self.files[key] for key in self._followed_in[entry.group])
        rotated = (one.entry for one in followed if one.is_rotated)
        seen = (one for one in rotated if one.key in self._entries)
        copies = (one.entry for one in self._left.values() if one.copy_of is not None)
        return any(is_newer(entry, one) for one in seen) or any(
            one.group == entry.group and is_newer_by_name(entry, one) for one in copies
        )

    # what is done with a file that was found

    def _act(self, sample: Sample, decision: Decision, now: int) -> None:
        self._left.pop(sample.entry.key, None)
        cursor = decision.cursor
        if decision.state is FileState.COPY:
            self._leave_copy(sample, cursor)
        elif decision.state is FileState.LEFT:
            self._left[sample.entry.key] = replace(sample, head=b"", fits={}, copy_of=None)
            self._report_left(sample, decision.actions)
        elif cursor is not None:
            self._inherit(sample, cursor, now)
        else:
            self._begin(sample, now)

    def _report_left(self, sample: Sample, actions: Collection[Action]) -> None:
        path = sample.entry.path
        if Action.REPORT_TOO_OLD in actions:
            text = "was not written for longer than --ignore-older; it is followed once it is"
            self.report(NoticeKind.AGED, path, text)
        if Action.REPORT_DAMAGE in actions:
            text = f"is damaged ({sample.damage}): what was not read before is lost"
            self.report(NoticeKind.DAMAGED, path, text)
        if Action.REPORT_OLDER in actions:
            known = (one.cursor for one in self._known(sample.entry.group))
            self.notices += sibling_losses(sample.entry, known)

    def _leave_copy(self, sample: Sample, cursor: Cursor | None) -> None:
        group = (self.files[key] for key in self._followed_in[sample.entry.group])
        live = (one.file for one in group if one.entry.path == sample.entry.group)
        original = cursor.file if cursor else next(live, None)
        if sample.entry.compression is None and sample.copy_of is not None:
            original = sample.copy_of  # which may have been truncated since
        if original is not None:
            self._left[sample.entry.key] = replace(sample, fits={}, copy_of=original)

    def _inherit(self, sample: Sample, cursor: Cursor, now: int) -> None:
        if self._remembered.pop(cursor.file, None) is None:
            return  # another copy was first
        self._left.pop(sample.entry.key, None)
        self._follow(sample, cursor, now)

    def _begin(self, sample: Sample, now: int) -> None:
        entry, (offset, tail) = sample.entry, sample.last
        label = entry.path if entry.wanted else entry.group
        identity = identify(entry.key.inode, sample.head[:offset], tail)
        self._follow(sample, Cursor(self._new_id(), label, offset, identity, now), now)
        file = self.files[entry.key]
        self.keep(file._replace(progress=file.progress._replace(is_fresh=True)))

    def _follow(self, sample: Sample, cursor: Cursor, now: int) -> None:
        home = self._home(cursor.path, sample.entry)
        file = FollowedFile.follow(cursor, sample, home, now)
        self._note_folder(file)
        self.keep(file)
        self._followed_in[sample.entry.group].append(sample.entry.key)
        self.report(NoticeKind.FOUND, sample.entry.path, f"is followed from byte {cursor.offset}")

    # the selection and the positions

    def retarget(self, selection: Selection, known: Cursor | None = None) -> None:
        """Follow another selection; with `known`, forget all files but that.

        A file that is not selected any more is not followed any more; its cursor is remembered.
        """
        if known is not None:
            self._remembered = {known.file: known}
            self.live_paths.clear()
            self.files.clear()
        for file in list(self.files.values()):
            path, is_shown = file.entry.path, selection.shows
            if selection.excludes_file(path) or not (is_shown(path) or is_shown(file.entry.group)):
                self.leave_out(file)
        self._left = {key: sample for key, sample in self._left.items() if sample.copy_of}
        self.scanned_at = None
        self._selection = selection
        paths = [*self.live_paths, *(cursor.path for cursor in self._remembered.values())]
        self.live_paths = dict.fromkeys(path for path in paths if selection.shows(path))
        self._order()

    def rewind(self, cursors: Mapping[str, Cursor], now: int) -> bool:
        """Read each file on from its cursor, or from its start; remember no other cursors but these.

        Returns False, and does nothing, if a cursor is of an unknown file.
        """
        followed = {file.file for file in self.files.values()}
        known = followed | self._remembered.keys() | self._replaced.keys()
        if any(cursor.offset and cursor.file not in known for cursor in cursors.values()):
            return False
        for file in list(self.files.values()):
            self.keep(file.rewound(cursors.get(file.file, file.progress.start), now))
        others = cursors.keys() - followed - self._replaced.keys()
        self._remembered = {file: cursors[file] for file in others}
        return True

    def _order(self) -> None:
        """Put the followed files into chains; one at another live path joins the chains of both."""
        chains = chains_of((one.home, one.entry.group) for one in self.files.values())
        found = defaultdict(list)
        ranks = dict(self._ranks)
        for key, file in self.files.items():
            chain = chains[file.home]
            if file.progress.is_fresh and chain != self.chain_of.get(key, file.home):
                ranks.pop(file.file, None)  # it was in another chain
            found[chain].append(file)
        arranged = {name: arrange(chain, ranks) for name, chain in found.items()}
        self.chains = {name: [f.entry.key for f in files] for name, files in arranged.items()}
        self.chain_of = {key: name for name, keys in self.chains.items() for key in keys}
        ordered = (file for files in arranged.values() for file in files)
        # an empty one may be written, copied and truncated before a scan sees it again
        self._ranks = {f.file: number for number, f in enumerate(ordered) if f.progress.beginning}

    # what is known

    def _seen(self) -> list[FollowedFile]:
        return [file for key, file in self.files.items() if key in self._entries]

    def _home(self, label: str, entry: FileEntry) -> str:
        """Return the live path that a file of this label was rotated from, wherever it is now."""
        home = group_of(label, self.live_paths)
        return home if home in self.live_paths else entry.group

    def _note_folder(self, file: FollowedFile) -> None:
        path, home = file.entry.path, file.home
        moved = f"{path.rpartition('/')[0]}/{home.rpartition('/')[2]}"
        # a pattern may show the folder of rotated files, too; a file that is not named like a
        # rotated one is live there
        if not file.entry.wanted or group_of(path, {moved}) == moved:
            self._moved[moved] = home

    def _is_left(self, entry: FileEntry, are_read: Container[str]) -> bool:
        # not sampled until it changes or, as a compressed copy, its original is not read any more
        left = self._left.get(entry.key)
        if left is None or entry.differs(left.entry) or entry.is_sought < left.entry.is_sought:
            return False
        return left.copy_of is None or (entry.compression is not None and left.copy_of in are_read)

    def _index(self) -> None:
        """Sort known files by group, and remembered ones by inode as well."""
        followed, by_group, by_inode = defaultdict(list), defaultdict(list), defaultdict(list)
        for key, file in self.files.items():
            # if another file got its inode, its own group may show a copy; its live path may have
            # come since it was seen
            home = self._home(file.progress.label, file.entry)
            for group in {file.entry.group, file.home, home}:
                followed[group].append(key)
        for cursor in self._remembered.values():
            by_group[group_of(cursor.path, self.live_paths)].append(cursor)
            by_inode[cursor.identity.inode].append(cursor)
        self._followed_in, self._remembered_in, self._by_inode = followed, by_group, by_inode
        self._there = {(entry.group, key.inode) for key, entry in self._entries.items()}

    def _known(self, group: str) -> list[Known]:
        """Return the files that are known of a group."""
        known = []
        for key in self._followed_in[group]:
            presence = Presence.FOLLOWED if key in self._entries else Presence.DELETED
            known.append(Known(self.files[key].progress.last, presence))
        for cursor in self._remembered_in[group]:
            is_there = (group, cursor.identity.inode) in self._there
            presence = Presence.TRUNCATED if is_there else Presence.MISSING
            if cursor.file in self._remembered:
                known.append(Known(cursor, presence))
        return known

    # what ends

    def note_ended(self, ended: Collection[str]) -> None:
        """Note of which of the followed files nothing more is expected now."""
        self.ended -= {file.file for file in self.files.values()}
        self.ended |= set(ended)

    def _report_losses(self, sampled: Container[int]) -> None:
        """Report, after the first scan, the known files that were not found."""
        self._index()
        there = {key.inode for key in self._entries}
        accounted = self.ended | {sample.copy_of for sample in self._left.values()}
        unfound = []
        for group, cursors in self._remembered_in.items():
            for cursor in cursors if group in self.live_paths else ():
                inode = cursor.identity.inode
                is_known = cursor.offset or cursor.identity.head_length
                # one that is there and was not sampled may not be read now, which is reported
                is_hidden = inode in there and inode not in sampled
                if is_known and not (is_hidden or cursor.ended or cursor.file in accounted):
                    unfound.append(Unfound(cursor, group))
        left = [one.entry for one in self._left.values() if one.copy_of is None and one.size]
        self.notices += unfound_losses(unfound, left, self._archives)
        self.ended |= {one.cursor.file for one in unfound}

    def _forget(self, now: int, stored: Callable[[str], int]) -> None:
        """Forget files that are long gone, unless they have a position, to which a rewind may lead."""
        remembered = self._remembered
        replaced = self._replaced.items()
        self._replaced = {
            file: seen for file, seen in replaced if now - seen <= LONGEST_KEPT or stored(file)
        }
        for cursor in find_forgettable((c for c in remembered.values() if not stored(c.file)), now):
            del remembered[cursor.file]
        self.ended &= remembered.keys() | {file.file for file in self.files.values()}
        there = {entry.path for entry in self._entries.values() if entry.wanted}
        homes = {path for one in self.files.values() for path in (one.home, one.entry.group)}
        kept = there | homes | {cursor.path for cursor in remembered.values()}
        self.live_paths = {path: None for path in self.live_paths if path in kept}
        self._moved = {path: home for path, home in self._moved.items() if home in self.live_paths}


def _is_copy(sample: Sample, known: Sequence[Known]) -> bool:
    decision = decide(FileState.FOUND, Unrecognised(sample, is_new=False), known)
    return decision.state is FileState.COPY or Action.INHERIT in decision.actions
