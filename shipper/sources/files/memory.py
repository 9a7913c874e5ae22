"""What one follower knows of files: followed, left as they were seen, or only remembered.

Files are kept by device and inode, cursors by file id. Memory only; touches no disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from itertools import islice

from nats_logship.wire.positions import Cursor
from shipper.clock import Now
from shipper.sources.files.decide import FileState, Known, Presence
from shipper.sources.files.file import FollowedFile
from shipper.sources.files.identity import HEAD_BYTES, FileEntry, FileKey, Sample
from shipper.sources.files.paths import compression_of, group_of
from shipper.sources.files.succession import is_dated_before, is_newer, is_newer_by_name

_CLOCK_SLACK = 20_000_000
"""Nanoseconds by which a file's time may be behind the clock: the kernel stamps files by tick."""
_LONGEST_KEPT = 7 * 86_400 * 1_000_000_000
"""Nanoseconds for which a file that is gone is remembered."""
_MOST_BY_PATH = 64
_MOST_ROTATED = 5000
"""Files beyond those 64 of each path that are kept: a file keeps its path when it is rotated."""
_MOST_DELETED = 200
"""Deleted files that are remembered, whose compressed copies may come later."""
_MOST_ENDED = 1000
_MOST_UNREAD = 5000
"""Files not read for long that are kept since they were seen: an agent may restart every day."""


def find_forgettable(
    cursors: Iterable[Cursor],
    now: int,
    deleted: Collection[str] = (),
    seen: Mapping[str, int] | None = None,
) -> list[Cursor]:
    """Return those not read for 7 days, and those that are too many.

    `now` is in nanoseconds since the epoch. They may be forgotten once their file is gone: the
    stream, which is kept for a day, could not bring them back. `seen` are the times at which files
    may have been there last, by id: of those not read for longer, 5000 are kept for 7 days after
    that as well, so that a folder that is not mounted for a while loses nothing by it. The others
    are kept if they are among the 64 of their path that were read last, and 5000 more of all paths:
    there may be a week of rotated files. A node may have thousands of pods a day: only the last 200
    of the `deleted` files, whose ids are given oldest first, are kept.
    """
    by_path: defaultdict[str, list[Cursor]] = defaultdict(list)
    for cursor in cursors:
        by_path[cursor.path].append(cursor)
    there, long_deleted = seen or {}, set(islice(deleted, max(0, len(deleted) - _MOST_DELETED)))
    found: list[Cursor] = []
    unread: list[Cursor] = []
    rotated: list[Cursor] = []
    for same in by_path.values():
        same.sort(key=lambda cursor: cursor.seen, reverse=True)
        for number, one in enumerate(same):
            is_unseen = now - max(one.seen, there.get(one.file, 0)) > _LONGEST_KEPT
            if is_unseen or one.file in long_deleted:
                found.append(one)
            elif now - one.seen > _LONGEST_KEPT:
                unread.append(one)
            elif number >= _MOST_BY_PATH:
                rotated.append(one)
    for many, most in ((unread, _MOST_UNREAD), (rotated, _MOST_ROTATED)):
        many.sort(key=lambda cursor: cursor.seen, reverse=True)
        found += many[most:]
    return found


class Memory:
    """The files and cursors of one follower.

    `files` are the followed files, `entries` what the last scan saw, `gone` the unknown files that
    came before it and were deleted, which are open, `were_live` all that came to live paths. `left`
    are the samples of copies and of files that are left. `remembered` are cursors whose files may
    be found again. `ended` are the ids of files of which nothing more is expected, or whose loss
    was reported, the oldest first, and `deleted` those of remembered files that have no name
    anywhere. The rotated siblings of `live_paths` are looked for. `scanned_at` is when the last
    scan began after which all files were decided on; None before the first one of a selection.
    `is_clock_back`: the clock was set back since then.
    """

    def __init__(self, known: Iterable[Cursor]) -> None:
        self.files: dict[FileKey, FollowedFile] = {}
        self.entries: dict[FileKey, FileEntry] = {}
        self.gone: dict[FileKey, FileEntry] = {}
        self.were_live: Container[FileKey] = ()
        self.left: dict[FileKey, Sample] = {}
        self.remembered = {cursor.file: cursor for cursor in known}
        self.ended: dict[str, None] = {}
        self.deleted: dict[str, None] = {}
        self.live_paths: dict[str, None] = {}
        self.scanned_at: int | None = None
        self.is_clock_back = False
        self._latest = 0
        self._began: Now | None = None  # the first of these times
        # what was rotated later was not there when an agent scanned or read last
        self._known_until = max((one.seen for one in self.remembered.values()), default=None)
        self.index()

    def note_time(self, now: Now) -> None:
        """Note the time of a scan or a gathering."""
        self._began = self._began or now
        self.is_clock_back |= now.wall < self._latest
        self._latest = now.wall

    def note_decided(self, scanned_at: int) -> None:
        """Note that a scan decided on all files: what is unknown by now was there before us."""
        self.scanned_at = self._known_until = scanned_at
        self.is_clock_back = False

    def note_entries(self, entries: Iterable[FileEntry], gone: Iterable[FileEntry]) -> None:
        """Note what a scan saw; links show a file at several paths: the first one counts."""
        self.entries, self.gone = {}, {entry.key: entry for entry in gone}
        for entry in sorted(entries, key=lambda one: (not one.is_live, not one.wanted, one.path)):
            self.entries.setdefault(entry.key, entry)
        found = (*self.entries.values(), *self.gone.values())
        self.live_paths |= {entry.path: None for entry in found if entry.wanted}

    def keep(self, file: FollowedFile) -> None:
        """Keep the newest value of a followed file."""
        self.files[file.entry.key] = file

    def note_state(self, file: FollowedFile, state: FileState) -> None:
        """Keep a file where its new state belongs."""
        if state not in {FileState.REPLACED, FileState.REMEMBERED}:
            self.keep(file if file.state is state else file._replace(state=state))
            return
        del self.files[file.entry.key]
        if state is FileState.REMEMBERED and file.progress.is_known:
            self.remembered[file.file] = file.progress.last

    def leave(self, sample: Sample) -> None:
        """Keep the sample of a copy, or of a file that is left."""
        self.left[sample.entry.key] = sample
        self._index_left(sample)

    def _index_left(self, sample: Sample) -> None:
        self._left_in[sample.entry.group].append(sample)
        if sample.copy_of is not None:
            self._copies_of[sample.copy_of].append(sample)

    def find_left(self, group: str) -> list[Sample]:
        """Return the samples of the copies of a group, and of its files that are left."""
        return [one for one in self._left_in[group] if self.left.get(one.entry.key) is one]

    def has_copy(self, file: str, but: FileKey) -> bool:
        """Whether there is a copy of a file, by its id, besides the one of this key."""
        copies = (one for one in self._copies_of[file] if self.left.get(one.entry.key) is one)
        return any(one.entry.key != but for one in copies)

    def find_seen(self) -> list[FollowedFile]:
        """Return the followed files that the last scan saw."""
        return [file for key, file in self.files.items() if key in self.entries]

    def find_home(self, label: str, entry: FileEntry) -> str:
        """Return the live path that a file of this label was rotated from, wherever it is now."""
        home = group_of(label, self.live_paths)
        return home if home in self.live_paths else entry.group

    def list_sibling_paths(self) -> dict[str, str]:
        """Return the paths whose rotated siblings are looked for, each with its group.

        Those are the live paths, and their names in the folders that rotated files were moved to.
        """
        found = {path: path for path in self.live_paths}
        for file in self.files.values():
            folder, path = file.entry.path.rpartition("/")[0], file.entry.path
            if file.home not in self.live_paths or file.home.rpartition("/")[0] == folder:
                continue
            moved = f"{folder}/{file.home.rpartition('/')[2]}"
            # a pattern may show the folder of rotated files, too; a file that is not named like a
            # rotated one is live there
            if not file.entry.wanted or group_of(path, {moved}) == moved:
                found.setdefault(moved, file.home)
        return found

    def find_sought(self, shown: Iterable[FileEntry]) -> dict[int, str]:
        """Return the inodes to look for beyond the files shown, each with its file's live path.

        Those are the followed files that have a name somewhere, and before the first scan the
        remembered ones; the inode of one of these may be another file's by now.
        """
        there = {entry.key.inode for entry in shown}
        found: dict[int, str] = {}
        if self.scanned_at is None:
            for cursor in self.remembered.values():
                if (home := group_of(cursor.path, self.live_paths)) in self.live_paths:
                    found[cursor.identity.inode] = home
        for key, file in self.files.items():
            if file.is_linked and key.inode not in there:
                found[key.inode] = file.home
        return found

    def is_left(self, entry: FileEntry, are_read: Container[str]) -> bool:
        """Whether a file need not be sampled.

        It must be if it changed or, as a compressed copy, if its original is not read any more.
        """
        left = self.left.get(entry.key)
        if left is None or entry.differs(left.entry):
            return False
        return left.copy_of is None or (entry.compression is not None and left.copy_of in are_read)

    def index(self) -> None:
        """Sort known files by group, remembered ones by inode and copies by original as well."""
        followed, by_group, by_inode = defaultdict(list), defaultdict(list), defaultdict(list)
        by_archive: defaultdict[str, list[Cursor]] = defaultdict(list)
        for key, file in self.files.items():
            # if another file got its inode, its own group may show a copy; its live path may have
            # come since it was seen
            home = self.find_home(file.progress.label, file.entry)
            for group in {file.entry.group, file.home, home}:
                followed[group].append(key)
        for cursor in self.remembered.values():
            group = group_of(cursor.path, self.live_paths)
            by_group[group].append(cursor)
            by_inode[cursor.identity.inode].append((group, cursor))
            if compression_of(cursor.path) and cursor.identity.head_length >= HEAD_BYTES:
                by_archive[cursor.path].append(cursor)
        self.followed_in, self.remembered_in = followed, by_group
        self._by_inode, self._by_archive = by_inode, by_archive
        self._there = {(entry.group, key.inode) for key, entry in self.entries.items()}
        # a sample that is left no more stays in these until the next time
        self._left_in: defaultdict[str, list[Sample]] = defaultdict(list)
        self._copies_of: defaultdict[str, list[Sample]] = defaultdict(list)
        for sample in self.left.values():
            self._index_left(sample)

    def find_known(self, group: str) -> list[Known]:
        """Return the files that are known of a group."""
        known = []
        for key in self.followed_in[group]:
            presence = Presence.FOLLOWED if key in self.entries else Presence.DELETED
            known.append(Known(self.files[key].progress.last, presence, key))
        for cursor in self.remembered_in[group]:
            is_there = (group, cursor.identity.inode) in self._there
            presence = Presence.TRUNCATED if is_there else Presence.MISSING
            if cursor.file in self.remembered:
                known.append(Known(cursor, presence))
        return known

    def find_same(self, sample: Sample, but: str | None) -> list[Cursor]:
        """Return the cursors of remembered files that it was, and whose bytes it has.

        `but` is the id of a file that was truncated there: its bytes are another file's by now.
        """
        return [
            cursor
            for cursor in self._find_near(sample.entry)
            # its inode alone may soon be another file's
            if (cursor.offset or cursor.identity.head_length) and cursor.file != but
            if cursor.file in self.remembered  # no other file has inherited it meanwhile
            if sample.has_all(cursor)
        ]

    def _find_near(self, entry: FileEntry) -> set[Cursor]:
        """Return the cursors of remembered files that had an inode, or were the archive at a path.

        On another device a clone has the same inode and the same bytes: the file in the cursor's
        group is the cursor's. An archive that is half copied may be replaced by the whole one. A
        file whose last name was deleted never comes back: the inode is another file's.
        """
        inode = entry.key.inode
        same = {
            cursor
            for group, cursor in self._by_inode[inode]
            if group == entry.group or (group, inode) not in self._there
            if cursor.file not in self.deleted
        }
        return same.union(self._by_archive[entry.path])

    def find_unseen(self, undecided: Container[str] = ()) -> list[FollowedFile]:
        """Return the followed files that the last scan did not see, but for those of groups."""
        unseen = (file for key, file in self.files.items() if key not in self.entries)
        return [file for file in unseen if file.entry.group not in undecided]

    def choose_samples(self, is_open: Container[FileKey]) -> dict[FileEntry, Collection[Cursor]]:
        """Return the files to sample before `settle`, each with the cursors that may fit it."""
        seen = self.find_seen()
        # a file that has just gone may have been truncated before; the next scan knows
        unseen = [
            f for f in self.find_unseen() if f.unseen_since is not None and f.entry.key in is_open
        ]
        are_read = {file.file for file in (*seen, *unseen) if not file.is_doubtful}
        asked = [
            entry
            for key, entry in (*self.gone.items(), *self.entries.items())
            if key not in self.files and not self.is_left(entry, are_read)
        ]
        unknown = (f for f in seen if f.is_doubtful or (f.entry.size and not f.progress.is_known))
        asked += [file.entry for file in unknown]
        if not asked:
            return {}
        groups = {entry.group for entry in asked}
        # a found file may be a copy of any file of its group that is truncated, as no compressed is
        plain = (f.entry for f in seen if f.entry.compression is None)
        asked += [entry for entry in plain if entry.group in groups]
        self.index()
        # a group may have thousands of files: they share one set
        of_group = {group: {one.cursor for one in self.find_known(group)} for group in groups}
        return {entry: self._choose_cursors(entry, of_group[entry.group]) for entry in asked}

    def _choose_cursors(self, entry: FileEntry, of_group: set[Cursor]) -> Collection[Cursor]:
        """Return the cursors that may fit a file; of a group, if it may be a copy."""
        near, file = self._find_near(entry), self.files.get(entry.key)
        if file is not None and file.progress.is_known and not file.is_doubtful:
            return {file.progress.last, *near}  # if it does not fit, the file becomes doubtful
        return of_group if near <= of_group else of_group | near

    def find_originals(self, groups: Container[str]) -> dict[FileEntry, bytes]:
        """Return the files of groups that are rotated or deleted, and how each begins.

        Of files that came and left their paths unseen nothing is known.
        """
        followed = (one for one in self.files.values() if one.entry.group in groups)
        rotated = (one for one in followed if one.is_rotated or one.entry.key not in self.entries)
        known = {one.entry: one.progress.beginning for one in rotated}
        return known | dict.fromkeys(self.gone.values(), b"")

    def is_new(self, entry: FileEntry, known: Iterable[Known]) -> bool:
        """Whether an unknown file is not older than what was read of its group."""
        # if the clock was set back, a file that came since the last scan may seem to be older
        is_recent = self.is_clock_back and self.scanned_at is not None
        if entry.wanted or is_recent or self._is_younger(entry):
            return True
        if self.is_before_known(entry):
            return False
        newest = self._find_newest([one.cursor for one in known])
        return newest is not None and entry.modified + _CLOCK_SLACK >= newest

    def _find_newest(self, cursors: Collection[Cursor]) -> int | None:
        """Return the time from which on an unknown file of a group is new; None if none is."""
        # a backlog may be read long after its successor was written and rotated, but not before
        # the last scan
        times = [] if self._known_until is None else [self._known_until]
        # nor before a file was found; that counts only if none was read, since a copy of its lines
        # may be older
        read = [c.seen for c in cursors if c.offset] or [c.seen for c in cursors]
        return min([*times, max(read)] if read else times, default=None)

    def _is_younger(self, entry: FileEntry) -> bool:
        """Whether a rotated file of its group is followed, or was, that is older."""
        followed = (self.files[key] for key in self.followed_in[entry.group])
        rotated = (one.entry for one in followed if one.is_rotated)
        seen = (one for one in rotated if one.key in self.entries)
        if any(is_newer(entry, one) for one in seen):
            return True
        copies = (one.entry for one in self.find_left(entry.group) if one.copy_of is not None)
        return any(is_newer_by_name(entry, one) for one in copies)

    def is_before_known(self, archive: FileEntry) -> bool:
        """Whether the date of a compressed file is not later than that of a known or left one."""
        if archive.compression is None:
            return False
        followed = (self.files[key].entry for key in self.followed_in[archive.group])
        left = (one.entry for one in self.find_left(archive.group) if one.copy_of is None)
        return any(
            one.group == archive.group and is_dated_before(archive, one)
            for one in (*followed, *left)
            if one.key != archive.key
        )

    def forget(self, now: Now, stored: Callable[[str], int]) -> None:
        """Forget files that are long gone; those with a position may be rewound to it.

        Setting the clock makes none older.
        """
        remembered, today = self.remembered, now.without_step(self._began or now)
        unstored = [cursor for cursor in remembered.values() if not stored(cursor.file)]
        for cursor in find_forgettable(unstored, today, self.deleted):
            del remembered[cursor.file]
        known = remembered.keys() | {file.file for file in self.files.values()}
        ended = [file for file in self.ended if not (file in known or stored(file))]
        for file in ended[:-_MOST_ENDED]:  # what was read of the others may be stored yet
            del self.ended[file]
        self.deleted = {file: None for file in self.deleted if file in remembered}
        there = {entry.path for entry in self.entries.values() if entry.wanted}
        homes = {path for one in self.files.values() for path in (one.home, one.entry.group)}
        kept = there | homes | {cursor.path for cursor in remembered.values()}
        self.live_paths = {path: None for path in self.live_paths if path in kept}
