"""One journal: how far it is read and covered by blocks. Opens nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from nats_logship.wire.message import Identity, Section, Span
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.journal.headers import JournalFile
from shipper.sources.journal.holes import Holes

_TIME = re.compile(rb"t=([0-9a-f]+)")


def time_of(mark: bytes) -> int:
    """Return the time of the entry with this mark, in microseconds since the epoch; 0 without."""
    found = _TIME.search(mark)
    return int(found[1], 16) if found else 0


@dataclass(slots=True, eq=False)
class Journal:
    """A journal (seqnum_id) and its file id; positions are numbers of entries.

    `position` is the next entry to read, `mark` that of the last one that was read; blocks cover
    what is below `covered`. Entries that are not newer than `newer_than` (microseconds since the
    epoch) were shipped under another file id.
    """

    name: str
    file: str
    path: str
    position: int
    files: tuple[JournalFile, ...]
    mark: bytes = b""
    newer_than: int = 0
    covered: int = 0
    start: int = 0
    has_left_out: bool = False
    doubted: frozenset[JournalFile] = frozenset()  # their last entries are not printed
    known_end: int = 0  # behind the last entry that was seen, of files that are gone
    last_time: int = 0  # of the last entry that was seen, in microseconds since the epoch
    empty: int = 0  # entries that had no message to show
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
        return [one for one in self.files if one not in self.doubted]

    @property
    def is_unread(self) -> bool:
        """Whether there are entries from the position on."""
        return self.end > self.position

    @property
    def went_back(self) -> bool:
        """Whether all numbers are below those that were read, but an entry is newer."""
        end = max((one.tail + 1 for one in self.files), default=self.position)
        return end < self.position and self.last_time > time_of(self.mark) > 0

    def files_from(self, number: int) -> list[JournalFile]:
        """Return the files that have entries from a number on."""
        return [one for one in self.files if one.tail >= number]

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
        )
        self.covered, self.has_left_out = self.position, False
        return Block(section, lines, now)


def choose(journals: Sequence[Journal]) -> Journal | None:
    """Return the journal to read next, the one whose unread files are oldest; None without any.

    So a journal is read to its end before one that was created after it.
    """
    unread = [one for one in journals if one.is_unread]

    def age(journal: Journal) -> int:
        return min(one.head_time for one in journal.files_from(journal.position))

    return min(unread, key=age, default=None)
