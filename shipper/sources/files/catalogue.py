"""Does what `decide` decides about the files of one follower, and keeps their order.

Touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import format_time
from nats_logship.wire.positions import Cursor
from shipper.clock import Now
from shipper.sources.files.decide import (
    Action,
    Compared,
    Decision,
    Event,
    FileState,
    Known,
    Matched,
    Presence,
    Sampled,
    Unmatched,
    Unseen,
    decide,
)
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import FileEntry, FileKey, Sample, identify
from shipper.sources.files.losses import report_sibling, report_unfound
from shipper.sources.files.memory import Memory
from shipper.sources.files.paths import Selection
from shipper.sources.files.scan import Scan
from shipper.sources.files.succession import arrange, chains_of, oldest_first
from shipper.sources.notices import Notice, NoticeKind


class Catalogue:
    """The files of one follower.

    `files` are the followed ones. `chains` holds their keys by chain, oldest first, and `chain_of`
    the chain of each. `notices` are the reports that nobody took yet.
    """

    def __init__(
        self, selection: Selection, known: Iterable[Cursor], new_id: Callable[[], str]
    ) -> None:
        self.memory = Memory(known)
        self.files = self.memory.files
        self.chains: Mapping[str, list[FileKey]] = {}
        self.chain_of: dict[FileKey, str] = {}
        self.notices: list[Notice] = []
        self._new_id = new_id
        self._ranks: dict[str, int] = {}  # places in the order of reading, by file id
        self._archives: Sequence[FileEntry] = ()
        self.retarget(selection)

    def report(self, kind: NoticeKind, path: str, text: str, lost: int = 0) -> None:
        """Add a notice."""
        self.notices.append(Notice(kind, path, text, lost))

    # what a scan showed

    def note_scan(self, scan: Scan, now: Now, is_open: Container[FileKey]) -> list[FollowedFile]:
        """Note what a scan saw; return files that may be rewritten in place and are at rest now."""
        self._archives = scan.archives
        self.memory.note_entries(scan.entries, scan.gone)
        self.memory.were_live = scan.were_live
        touched = []
        for file in self.memory.find_seen():
            entry, key = self.memory.entries[file.entry.key], file.entry.key
            home = self.memory.find_home(file.progress.label, entry)
            if entry.size and entry.path != home and not (file.progress.is_known or key in is_open):
                self.memory.note_state(file, decide(file.state, Event.LEFT_OUT).state)
                if entry.is_live:
                    self._report_unread(file)
                continue
            is_shorter = entry.compression is None and entry.size < file.size
            is_doubtful = is_shorter or (key not in is_open and entry.differs(file.entry))
            event = Event.DOUBTED if is_doubtful else Event.SEEN
            state = decide(file.state, event).state
            seen = file.note_seen(entry, home, state, now)
            self.memory.keep(seen)
            if entry.path != file.entry.path:
                self.report(NoticeKind.ROTATED, file.entry.path, f"is now {entry.path}")
            if file.is_touched and entry.modified == file.modified:
                touched.append(seen)
        return touched

    def note_comparison(self, file: FollowedFile, sample: Sample, is_same: bool, now: Now) -> None:
        """Note whether a file that is at rest still begins with all that was read of it."""
        decision = decide(file.state, Compared(file.is_in(sample), is_same))
        self.memory.note_state(file._replace(is_touched=False), decision.state)
        if Action.FOLLOW_REWRITTEN in decision.actions:
            self._follow_rewritten(file, sample, now)
        # an end that is allocated beforehand is overwritten, or cut off, without a report
        if Action.REPORT_TOUCHED in decision.actions and not file.was_padded:
            known = f"the same {file.progress.content.length} first bytes"
            text = f"was touched, or written again with {known}: not shipped again"
            self.report(NoticeKind.CONTENT, file.entry.path, text)

    def note_unseen(
        self, file: FollowedFile, unseen: Unseen, sample: Sample | None, now: Now
    ) -> None:
        """Note that a scan saw a file at no path; `sample` is one of it if it is open."""
        decision = decide(file.state, unseen)
        self.memory.note_state(file, decision.state)
        match decision.actions:
            case (Action.READ,):
                if file.entry.compression is None:
                    self.memory.keep(self.files[file.entry.key].mark(now))
            case (Action.FOLLOW_REWRITTEN,) if sample is not None:
                self._follow_rewritten(file, sample, now)
            case (Action.REPORT_EXPIRED,):
                how = "moved out of sight" if file.is_linked else "deleted"
                since = format_time(now.date(file.unseen_since or now.steady), "seconds")
                self._report_gone(file, f"was {how} before {since} and is held open no longer")
            case _ if unseen.is_open or file.progress.is_known:
                self._report_gone(file, "is gone")
            case _:
                self._report_unread(file)

    def leave_out(self, file: FollowedFile) -> None:
        """Stop following a file that is not selected any more; its cursor is remembered."""
        self.memory.note_state(file, decide(file.state, Event.LEFT_OUT).state)

    def _report_gone(self, file: FollowedFile, how: str) -> None:
        lost, what = file.end - file.offset, "read to its end"
        if lost:
            what = f"bytes {file.offset} to {file.end} were not read"
        if not file.is_linked:
            self.memory.deleted[file.file] = None
        self.memory.ended[file.file] = None
        self.report(NoticeKind.GONE, file.entry.path, f"{how}, {what}", lost)

    def _report_unread(self, file: FollowedFile) -> None:
        """Report a file that was empty when it was seen, and never open: its inode is gone."""
        text = "is gone; lines that were written to it since it was found empty were not read"
        self.report(NoticeKind.UNREAD, file.entry.path, text)

    def _follow_rewritten(self, file: FollowedFile, sample: Sample, now: Now) -> None:
        """Follow what was written over a file's content as another file."""
        self._report_truncated([file])
        self._begin(sample, file.progress.label, now)
        if file.unseen_since is not None:
            rewritten = self.files[file.entry.key]._replace(unseen_since=file.unseen_since)
            self.memory.note_state(rewritten, FileState.DELETED)

    # what the sampled files are

    def settle(
        self,
        samples: Iterable[Sample],
        undecided: set[str],
        now: Now,
        stored: Callable[[str], int],
        *,
        at_end: Container[str],
    ) -> None:
        """Decide what the sampled files are, and follow those that are to be followed.

        Nothing is decided about the `undecided` groups, whose files moved during the scan. Groups
        of files that were rewritten are added: the next scan finds out whether they are copies.
        `stored` returns up to which byte a file is stored, by id; 0 if its position is forgotten.
        `at_end` are the groups whose files are begun at their end.
        """
        samples = [one for one in samples if one.entry.group not in undecided]
        undecided |= self._doubt_rewritten(samples)
        found = [self._candidate(one) for one in samples if one.entry.group not in undecided]
        truncated = self._check_followed(found, now)
        groups = defaultdict(list)
        for sample in found:
            if sample.entry.key not in self.files:
                groups[sample.entry.group].append(sample)
        if groups:
            self.memory.index()
        rewritten = {file.entry.key: file.file for file in truncated}
        for name, candidates in groups.items():
            self._settle_group(name, candidates, rewritten, now, at_end=name in at_end)
        self._report_truncated(truncated)
        self._order()
        if not undecided:  # or the cursors of those groups would seem to be without a file
            there = self.memory.entries.keys() | self.files.keys()
            self.memory.left = {
                key: sample for key, sample in self.memory.left.items() if key in there
            }
            if self.memory.scanned_at is None:
                self._report_losses({sample.entry.key.inode for sample in found})
            self.memory.note_decided(now.wall)
            self.memory.forget(now, stored)

    def _doubt_rewritten(self, samples: Iterable[Sample]) -> set[str]:
        """Doubt rotated files that lost what was read of them; return their groups.

        They were compared with no cursor of another file, unless they were doubtful before.
        """
        groups = set()
        for sample in samples:
            file = self.files.get(sample.entry.key)
            if file and not (file.is_doubtful or sample.entry.is_live or file.is_in(sample)):
                self.memory.note_state(file, decide(file.state, Event.DOUBTED).state)
                groups.add(sample.entry.group)
        return groups

    def _candidate(self, sample: Sample) -> Sample:
        left = self.memory.left.get(sample.entry.key)
        # its inode may be another file's, and it may have grown
        copy_of = left.copy_of if left and sample.head.startswith(left.head) else None
        # a renamed file may have been asked for at the path before
        entry = self.memory.entries.get(sample.entry.key, sample.entry)
        return replace(sample, entry=entry, copy_of=copy_of)

    def _check_followed(self, found: Iterable[Sample], now: Now) -> list[FollowedFile]:
        """Return the followed files that were truncated or rewritten; they are followed no more."""
        truncated = []
        for sample in found:
            file = self.files.get(sample.entry.key)
            if file is None:
                continue
            decision = decide(file.state, Sampled(file.is_in(sample)))
            if Action.CONFIRM in decision.actions:
                file = file.note_sample(sample, now)
            else:
                truncated.append(file)
            self.memory.note_state(file, decision.state)
        return truncated

    def _report_truncated(self, truncated: Iterable[FollowedFile]) -> None:
        read_in = {file.file: file.entry.path for file in self.files.values()}
        for file in truncated:
            lost = file.end - file.offset
            unread = format_count(lost, "byte", "were")
            text = f"was truncated or written again; {unread} seen in it and not read"
            if file.file in read_in:
                text, lost = f"was truncated; its rest is read from {read_in[file.file]}", 0
            # at another live path its inode may be another file's
            path = file.progress.label if file.entry.is_live else file.entry.path
            self.report(NoticeKind.TRUNCATED, path, text, lost)
            self.memory.ended[file.file] = None

    def _settle_group(
        self,
        name: str,
        candidates: list[Sample],
        truncated: Mapping[FileKey, str],
        now: Now,
        *,
        at_end: bool,
    ) -> None:
        # all of a group are recognised by inode before the others are compared with the group:
        # the live file first, then the oldest
        live = [sample for sample in candidates if sample.entry.is_live]
        rest = []
        rotated = oldest_first(sample for sample in candidates if not sample.entry.is_live)
        for sample in (*live, *rotated):
            same = self.memory.find_same(sample, but=truncated.get(sample.entry.key))
            best = decide(FileState.FOUND, Matched(same)).cursor if same else None
            if best is None:
                rest.append(sample)
            else:
                self._supersede(same, best)
                self._inherit(sample, best, now)
        known = self.memory.find_known(name)
        # a new file of a group that we know comes after lines that we shipped, or would have
        rest = [replace(sample, last=(0, b"")) if known else sample for sample in rest]
        # copies of known files first: their places say whether another file is new
        rest.sort(key=lambda one: not self._is_copy(one, self._find_alike(one, known)))
        gone: list[Known] = []  # that are followed since
        for sample in rest:
            # whatever its time says, it was written after what was read of the truncated file
            is_rewritten = sample.entry.key in truncated
            is_new = is_rewritten or self.memory.is_new(sample.entry, known)
            is_new &= not (sample.entry.compression and at_end)
            is_too_old = self._selection.is_too_old(sample.entry.modified, now.wall)
            was_live = sample.entry.key in self.memory.were_live
            observation = Unmatched(sample, is_new, is_too_old, was_live)
            others = self._find_alike(sample, [*known, *gone])
            self._act(sample, decide(FileState.FOUND, observation, others), now)
            key = sample.entry.key
            if key in self.memory.gone and key in self.files:
                gone.append(Known(self.files[key].progress.last, Presence.DELETED, key))

    def _is_copy(self, sample: Sample, known: Sequence[Known]) -> bool:
        was_live = sample.entry.key in self.memory.were_live
        observation = Unmatched(sample, is_new=False, was_live=was_live)
        decision = decide(FileState.FOUND, observation, known)
        return decision.state is FileState.COPY or Action.INHERIT in decision.actions

    def _find_alike(self, found: Sample, known: Iterable[Known]) -> list[Known]:
        """Return the known files but for those that have other bytes, or that have a copy."""
        has_copy, key = self.memory.has_copy, found.entry.key
        return [
            one
            for one in known
            if one.key not in found.differs_from
            and not (one.presence is Presence.DELETED and has_copy(one.cursor.file, but=key))
        ]

    def _supersede(self, same: Iterable[Cursor], best: Cursor) -> None:
        """Forget cursors of the same file: a copy would be taken for it.

        An agent found the file and read nothing of it, or the file was rewritten in place since.
        """
        for other in same:
            if other is not best:
                self.memory.ended[other.file] = None
                if other.path == best.path:
                    self.memory.remembered.pop(other.file, None)

    # what is done with a file that was found

    def _act(self, sample: Sample, decision: Decision, now: Now) -> None:
        self.memory.left.pop(sample.entry.key, None)
        cursor = decision.cursor
        if decision.state is FileState.COPY:
            self._leave_copy(sample, cursor)
        elif decision.state is FileState.LEFT:
            self.memory.leave(replace(sample, head=b"", fits=(), copy_of=None))
            self._report_left(sample, decision.actions)
        elif cursor is not None:
            self._inherit(sample, cursor, now)
        else:
            entry = sample.entry
            self._begin(sample, entry.path if entry.wanted else entry.group, now)

    def _report_left(self, sample: Sample, actions: Collection[Action]) -> None:
        path = sample.entry.path
        if Action.REPORT_TOO_OLD in actions:
            text = "was not written for longer than --ignore-older; it is followed once it is"
            self.report(NoticeKind.AGED, path, text)
        if Action.REPORT_DAMAGE in actions:
            text = f"is damaged ({sample.damage}): what was not read before is lost"
            self.report(NoticeKind.DAMAGED, path, text)
        if Action.REPORT_OLDER in actions and not self.memory.is_before_known(sample.entry):
            known = (one.cursor for one in self.memory.find_known(sample.entry.group))
            self.notices += report_sibling(sample.entry, known)

    def _leave_copy(self, sample: Sample, cursor: Cursor | None) -> None:
        keys = self.memory.entries.keys() & self.memory.followed_in[sample.entry.group]
        group = (self.files[key] for key in keys)
        live = (one.file for one in group if one.entry.path == sample.entry.group)
        original = cursor.file if cursor else next(live, None)
        if sample.entry.compression is None and sample.copy_of is not None:
            original = sample.copy_of  # which may have been truncated since
        if original is not None:
            self.memory.leave(replace(sample, fits=(), copy_of=original))

    def _inherit(self, sample: Sample, cursor: Cursor, now: Now) -> None:
        if self.memory.remembered.pop(cursor.file, None) is None:
            return  # another copy was first
        self.memory.left.pop(sample.entry.key, None)
        self._follow(sample, cursor, now)

    def _begin(self, sample: Sample, label: str, now: Now) -> None:
        key, (offset, tail) = sample.entry.key, sample.last
        identity = identify(key.inode, sample.head[:offset], tail)
        self._follow(sample, Cursor(self._new_id(), label, offset, identity, now.wall), now)
        file = self.files[key]
        self.memory.keep(file._replace(progress=file.progress._replace(is_fresh=True)))

    def _follow(self, sample: Sample, cursor: Cursor, now: Now) -> None:
        home = self.memory.find_home(cursor.path, sample.entry)
        file = FollowedFile.follow(cursor, sample, home, now)
        if sample.entry.key in self.memory.gone:  # and so before its successor
            gone = FileState.DELETED
            file = file._replace(state=gone, unseen_since=now.steady, is_linked=False)
        self.memory.keep(file)
        for group in {sample.entry.group, home}:
            self.memory.followed_in[group].append(sample.entry.key)
        self.report(NoticeKind.FOUND, sample.entry.path, f"is followed from byte {cursor.offset}")

    # the selection and the positions

    def retarget(self, selection: Selection) -> None:
        """Follow another selection.

        A file that is not selected any more is not followed any more; its cursor is remembered.
        """
        for file in list(self.files.values()):
            path, is_shown = file.entry.path, selection.shows
            if selection.excludes_file(path) or not (is_shown(path) or is_shown(file.entry.group)):
                self.leave_out(file)
        self.memory.left = {
            key: sample for key, sample in self.memory.left.items() if sample.copy_of
        }
        self.memory.scanned_at = None
        self._selection = selection
        paths = [
            *self.memory.live_paths,
            *(cursor.path for cursor in self.memory.remembered.values()),
        ]
        self.memory.live_paths = dict.fromkeys(path for path in paths if selection.shows(path))
        self._order()

    def rewind(self, cursors: Mapping[str, Cursor], now: Now) -> bool:
        """Read each file on from its cursor, or from its start; forget all other cursors.

        Returns False, and does nothing, if a cursor is of an unknown file.
        """
        followed = {file.file for file in self.files.values()}
        remembered = self.memory.remembered.keys()
        replaced = self.memory.ended.keys() - remembered - followed
        known = followed | remembered | replaced
        if any(cursor.offset and cursor.file not in known for cursor in cursors.values()):
            return False
        for file in list(self.files.values()):
            self.memory.keep(file.rewind(cursors.get(file.file, file.progress.start), now))
        others = cursors.keys() - followed - replaced
        self.memory.remembered = {file: cursors[file] for file in others}
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

    # what ends

    def note_ended(self, ended: Collection[str]) -> None:
        """Note of which of the followed files nothing more is expected now."""
        for file in self.files.values():
            self.memory.ended.pop(file.file, None)
        self.memory.ended |= dict.fromkeys(ended)

    def _report_losses(self, sampled: Container[int]) -> None:
        """Report, after the first scan, the known files that were not found."""
        self.memory.index()
        there = {key.inode for key in self.memory.entries}
        copied = (sample.copy_of for sample in self.memory.left.values())
        accounted = {*self.memory.ended, *copied}
        unfound = []
        for group, cursors in self.memory.remembered_in.items():
            for cursor in cursors if group in self.memory.live_paths else ():
                inode = cursor.identity.inode
                is_known = cursor.offset or cursor.identity.head_length
                # one that is there and was not sampled may not be read now, which is reported
                is_hidden = inode in there and inode not in sampled
                if is_known and not (is_hidden or cursor.ended or cursor.file in accounted):
                    unfound.append((cursor, group))
        left = [one.entry for one in self.memory.left.values() if one.copy_of is None and one.size]
        self.notices += report_unfound(unfound, left, self._archives)
        self.memory.ended |= {cursor.file: None for cursor, _ in unfound}
