"""One journal: how far it is read and covered by blocks. Opens nothing."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nats_logship.wire.message import Identity, Section, Span
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.journal.headers import JournalFile
from shipper.sources.journal.holes import Holes

_BOOT, _TIME = re.compile(rb"b=([^;]+)"), re.compile(rb"t=([0-9a-f]+)")


def time_of(mark: bytes) -> int:
    """Return the time of the entry with this mark, in microseconds since the epoch; 0 without."""
    found = _TIME.search(mark)
    return int(found[1], 16) if found else 0


def _boot_of(mark: bytes) -> bytes:
    found = _BOOT.search(mark)
    return found[1] if found else b""


@dataclass(slots=True, eq=False)
class Journal:
    """A journal (seqnum_id) and its file id; positions are numbers of entries.

    `position` is the next entry to read, `mark` that of the last one that was read; blocks cover
    what is below `covered`. `shipped` is set while entries are read again that were shipped under
    another file id, before the journal was set back: the marks of the last one of those, and of the
    last one that was read.
    """

    name: str
    file: str
    path: str
    position: int
    files: tuple[JournalFile, ...]
    records: str  # how the lines of an entry are joined
    mark: bytes = b""
    shipped: tuple[bytes, bytes] | None = None
    covered: int = 0
    start: int = 0
    has_left_out: bool = False
    doubted: frozenset[JournalFile] = frozenset()  # their last entries are not printed
    known_end: int = 0  # behind the last entry that was seen, of files that are gone
    short_since: float = math.inf  # by the monotonic clock
    last_time: int = 0  # of the last entry that was seen, in microseconds since the epoch
    empty: int = 0  # entries that had no message to show
    unopened: dict[tuple[str, int], str] = field(default_factory=dict)  # and why, by key
    retry_at: float = 0.0  # to open them, by the monotonic clock
    next_run: float = 0.0  # likewise
    failures: int = 0  # of journalctl, one after the other
    problem: str = ""  # why it failed the last time
    is_narrow: bool = False  # the next run prints only the fields that are needed
    silent: tuple[int, float] = 0, 0.0  # an entry that was not printed, and since when
    holes: Holes = field(default_factory=Holes)

    def __post_init__(self) -> None:
        """Begin at the position."""
        self.covered = self.start = self.position

    @property
    def end(self) -> int:
        """The number behind the last entry, as far as that is known."""
        return max((one.tail + 1 for one in self.trusted), default=self.position)

    @property
    def trusted(self) -> list[JournalFile]:
        """Files that may have what their headers say."""
        return [one for one in self._openable if one not in self.doubted]

    @property
    def _openable(self) -> list[JournalFile]:
        return [one for one in self.files if one.key not in self.unopened]

    @property
    def is_unread(self) -> bool:
        """Whether there are entries from the position on."""
        return self.end > self.position

    @property
    def is_awaited(self) -> bool:
        """Whether more of it is expected than is covered."""
        return self.is_unread or self.covered < self.position or self.is_perhaps_set_back

    @property
    def is_short(self) -> bool:
        """Whether all numbers are below the last one that was read."""
        end = max((one.tail + 1 for one in self.files), default=self.position)
        return bool(self.mark) and end < self.position

    @property
    def is_perhaps_set_back(self) -> bool:
        """Whether it is short although the file that is being written is there."""
        return self.is_short and any("@" not in one.path.rpartition("/")[2] for one in self.files)

    @property
    def is_surely_set_back(self) -> bool:
        """Whether it is short although it has a newer entry."""
        return self.is_short and self.last_time > time_of(self.mark)

    def was_shipped(self, mark: bytes) -> bool:
        """Whether the next entry seems to be one that was shipped before the journal was set back.

        All entries behind one are new that is newer than those, or older than the entry before it,
        or of another boot behind entries of the last boot.
        """
        if self.shipped is None:
            return False
        last, before = self.shipped
        is_new = not time_of(before) <= time_of(mark) <= time_of(last)
        is_new |= _boot_of(before) == _boot_of(last) != _boot_of(mark)
        self.shipped = None if is_new else (last, mark)
        return not is_new

    def files_from(self, number: int) -> list[JournalFile]:
        """Return the files that have entries from a number on, and can be opened."""
        return [one for one in self._openable if one.tail >= number]

    def leave_out(self, reasons: Mapping[str, str]) -> bool:
        """Read no files that cannot be opened, by path; return whether there are any."""
        found = {one.key: reasons[one.path] for one in self.files if one.path in reasons}
        self.unopened |= found
        return bool(found)

    def describe_unopened(self) -> list[str]:
        """Return a sentence on each file that has unread entries and cannot be opened."""
        return [
            describe_unopened(one, self.unopened[one.key])
            for one in self.files
            if one.key in self.unopened and one.tail >= self.position
        ]

    @property
    def lost_end(self) -> int:
        """The number behind the last entry that will never be read; at most the position if none.

        Its files are gone, or journald has put them aside, damaged.
        """
        left = [one for one in self.files if one.tail >= self.position]
        is_lost = all(one.key in self.unopened and one.path.endswith("~") for one in left)
        ends = [one.tail + 1 for one in left if is_lost]
        return max(ends, default=0) if self.files else self.known_end

    def start_cursor(self, now: int) -> Cursor:
        """Return where reading began; `now` is nanoseconds since the epoch."""
        identity = Identity(0, 0, self.name, 0, "")
        return Cursor(self.file, self.path, self.start, identity, now, unit="entries")

    def cover(self, lines: bytes, now: int) -> Block:
        """Return a block over all that is below the position and not covered."""
        section = Section(
            path=self.path,
            span=Span(self.file, self.covered, self.position),
            size=len(lines),
            lines=lines.count(b"\n"),
            identity=Identity(0, 0, self.name, 0, self.mark.decode()),
            filtered=self.has_left_out,
            unit="entries",
            records=self.records,
        )
        self.covered, self.has_left_out = self.position, False
        return Block(section, lines, now)


def describe_unopened(file: JournalFile, reason: str) -> str:
    """Return a sentence on a file that cannot be opened."""
    left_out = f"its entries, from {file.head} on, are left out"
    return f"{file.path}: journalctl cannot open it: {reason}; {left_out}"


def list_turns(journals: Iterable[Journal], now: float) -> list[Journal]:
    """Return the journals that have unread entries and need not pause; the oldest files first."""
    ready = [one for one in journals if one.is_unread and one.next_run <= now]

    def age(journal: Journal) -> int:
        return min(one.head_time for one in journal.files_from(journal.position))

    return sorted(ready, key=age)
