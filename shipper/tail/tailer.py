"""Follows one file: how far it has been read, what recognises it, and whether there is more. Finds no files."""

from dataclasses import dataclass, replace
from enum import Enum

from broker.wire.message import Section, Span
from shipper.positions import Cursor
from shipper.tail.identity import (
    HEAD_BYTES,
    TAIL_BYTES,
    Fingerprint,
    Match,
    identify,
    judge,
)
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import age
from shipper.tail.reader import Block, Limits, Reading, Request, count_lines
from shipper.tail.scan import FileEntry

__all__ = ["LINE_PATIENCE", "FileState", "Stage", "Tailer"]


class Stage(Enum):
    """What became of a followed file; the values are the words for it."""

    FOLLOWING = "following"
    ROTATED = "rotated"
    DELETED = "deleted"
    DOUBTFUL = "doubtful"


@dataclass(frozen=True, slots=True)
class FileState:
    """A followed file as it was last seen.

    `offset` is the next byte to read, not to acknowledge; `held` are the bytes of an unfinished last line, which wait;
    `since` is when something to read was noticed, in nanoseconds, None where there is nothing. `note` says what keeps
    it from being read. `seen` is when it was last read, in nanoseconds.
    """

    path: str
    file: str
    size: int
    offset: int
    inode: int
    held: int
    seen: int
    since: int | None
    stage: Stage
    note: str


_MOST_PIECES = 4
"""How much of a line is read in one go, though its beginning was read more than `LINE_PATIENCE` before."""

LINE_PATIENCE = 1_000_000_000
"""Nanoseconds that an over-long line may keep all other files waiting."""


class Tailer:
    """One followed file; its file id and label stay, its path is where it was seen last.

    `rotated` is when it was found to stand no longer at its live path, in nanoseconds; None while it does. `stirred` is
    when it became `dirty`: since then there is, or may be, something to read.
    """

    def __init__(
        self, cursor: Cursor, entry: FileEntry, head: bytes, tail: bytes, now: int
    ) -> None:
        """Follow from the cursor on; `head` is what the file begins with now, read before or not."""
        self.file = cursor.file
        self.label = cursor.path
        self.offset = cursor.offset
        self._found = cursor
        self.seen = cursor.seen
        self.entry = entry
        self.rotated: int | None = None if entry.is_live else entry.modified
        self.unseen_since: int | None = None
        self.dirty = entry.size > cursor.offset
        self.stirred = now
        self.suspect = False
        self.note = ""
        self.loss: Notice | None = None
        self._begin = 0
        self._is_looked_at = head.startswith(b"\0")
        self._print = Fingerprint(cursor, head, tail)
        self._end = self.offset
        self._size = entry.size
        self._modified = entry.modified
        self._grew = now
        self._wants_whole_line = False
        # a hole is no line, so what stands behind it is not the rest of one
        self._pieces = 1 if tail.strip(b"\0") and not tail.endswith(b"\n") else 0
        self.line_began = now

    @property
    def cursor(self) -> Cursor:
        """Where the next line begins, and what the file looks like there."""
        identity = self._print.identity(self.entry.key.inode)
        return Cursor(self.file, self.label, self.offset, identity, self.seen)

    @property
    def start(self) -> Cursor:
        """The cursor of one who read nothing: where it was begun at its end there, else at 0.

        There it is recognised by all that was ever seen of the first bytes.
        """
        if self._found.offset:
            return self._found
        identity = identify(self.entry.key.inode, self.beginning[:HEAD_BYTES], b"")
        return Cursor(self.file, self.label, 0, identity, self.seen)

    @property
    def beginning(self) -> bytes:
        """The first bytes that were ever seen in the file; while they stand there it was not written anew."""
        return self._print.beginning

    @property
    def is_in_line(self) -> bool:
        """Whether pieces of a line were taken and its end was not; of an endless one, only at first."""
        is_recent = self.seen < self.line_began + LINE_PATIENCE
        return self._pieces > 0 and (self._pieces <= _MOST_PIECES or is_recent)

    @property
    def is_unread(self) -> bool:
        """Whether nothing was read of it yet."""
        return self.offset == self._begin

    @property
    def is_strange(self) -> bool:
        """Whether it was empty when it was found: what it begins with is to be looked at before it is truncated."""
        return len(self.beginning) < min(TAIL_BYTES, self.entry.size)

    @property
    def held(self) -> int:
        """Bytes of an unfinished last line that were seen and not taken."""
        return self._end - self.offset

    @property
    def unread(self) -> int:
        """Bytes that were seen to be there and not taken."""
        return max(self._size, self._end) - self.offset

    @property
    def age(self) -> tuple[bool, tuple[int, int, str]]:
        """What the files of a chain are sorted by: oldest first, the live one last."""
        live = self.rotated is None
        return live, age(self.entry.modified, self.entry.path)

    def sighted(self, entry: FileEntry, now: int) -> None:
        """Take note of where the file stands and how large it is; a compressed one is read on only when it changed."""
        if entry.packed is not None:
            if entry.differs(self.entry):
                self.stir(now)
            entry = replace(entry, size=self._size)
        self.entry = entry
        self.unseen_since = None
        self._grew = min(
            self._grew, now
        )  # else a clock that was set back makes its successors wait
        if entry.is_live:
            self.rotated = None
        else:
            self.rotated = now if self.rotated is None else min(self.rotated, now)
        if entry.packed is not None:
            return
        # it may have grown again behind the offset, and nothing may have been read that could tell
        if entry.size < self._size:
            self.suspect = True
            return
        self._note_size(entry.size, now)
        if entry.size != self._end or entry.modified != self._modified:
            self.stir(now)

    def stir(self, now: int) -> None:
        """Take note that there may be something to read."""
        if not self.dirty:
            self.dirty, self.stirred = True, now

    def differs(self, size: int, modified: int) -> bool:
        """Whether a file of this size and time is not as it was when it was last read; a reading tells what became of it.

        A compressed one, when it is not as it was sighted.
        """
        if (packed := self.entry.packed) is not None:
            return (size, modified) != (packed.stored, self.entry.modified)
        return size != self._end or modified != self._modified

    def recognised(self, head: bytes, size: int) -> None:
        """Take note of what the file begins with and how large it is, once it is known to be the one it was."""
        self.suspect = False
        self.stir(self._grew)
        self._print.saw(head)
        self._is_looked_at |= head.startswith(b"\0")
        self._size = size

    def glimpsed(self, head: bytes) -> None:
        """Take note of what an open file begins with that was not written anew, so that a copy of it is known."""
        self._print.saw(head)

    def skip_hole(self, start: int) -> None:
        """Begin at `start`, behind a hole that the file begins with; nothing was read yet."""
        self.offset = self._begin = start
        self._end = max(self._end, start)
        self._print.skipped(start)
        self._is_looked_at = False

    def unseen(self, now: int, modified: int) -> None:
        """Take note that the file stands at no path that we look at; it may still be open, and written to.

        `modified` is when it was written last, which decides its place among the others; 0 when that is not known.
        """
        self.entry = replace(self.entry, modified=modified or self.entry.modified)
        self.unseen_since = now if self.unseen_since is None else min(self.unseen_since, now)
        self.rotated = now if self.rotated is None else min(self.rotated, now)
        self._grew = min(self._grew, now)
        if self.entry.packed is None:
            self.stir(now)

    def is_settled(self, now: int, grace: int) -> bool:
        """Whether the file was rotated away and has not grown for `grace` nanoseconds: its last line is finished."""
        return self.rotated is not None and now >= max(self.rotated, self._grew) + grace

    def is_at(self, cursor: Cursor) -> bool:
        """Whether the cursor is where the file is read next, or before a hole that it begins with."""
        return self.offset == max(cursor.offset, self._begin)

    def is_stored(self, position: int) -> bool:
        """Whether all that was read is stored, when the file is stored up to `position`."""
        return self.is_unread or self.offset <= position

    def rewound(self, cursor: Cursor, found: tuple[int, bytes, bytes] | None, now: int) -> "Tailer":
        """Return the same file, to be read on from the cursor; `found` is the size, the first bytes and those before it now.

        `found` is None for a compressed file. The file is doubtful when these are not what the cursor says.
        """
        inode = self.entry.key.inode
        known = replace(cursor, path=self.label, identity=replace(cursor.identity, inode=inode))
        beginning, tail, is_same = self.beginning, b"", True
        if found is not None:
            size, head, before = found
            is_same = judge(known, inode, size, head, before) is Match.SAME
            is_same &= head.startswith(beginning)
            beginning, tail = (head, before) if is_same else (beginning, b"")
        again = Tailer(known, self.entry, beginning, tail, now)
        again.rotated, again.unseen_since = self.rotated, self.unseen_since
        again.suspect = self.suspect or not is_same
        if again.offset < self._begin:
            again.skip_hole(self._begin)
        again.stir(now)
        return again

    def request(self, descriptor: int, limit: int, limits: Limits) -> Request:
        """Return what to read next."""
        least = limits.max_line + 1 if self._wants_whole_line else limits.share
        return self.probe(descriptor, max(limit, least))

    def probe(self, descriptor: int, limit: int = 0) -> Request:
        """Return a request that reads nothing, or a little, to know whether what was read is still there."""
        tail = self._print.tail
        return Request(descriptor, self.offset, limit, self._size, self.beginning, tail)

    def accept(self, reading: Reading, now: int, limits: Limits) -> list[Block]:
        """Take what was read: move the offset, and return the blocks.

        An unfinished last line is taken only when the file is settled, with a newline added that no span counts.
        """
        self.note = reading.error
        if reading.error or not reading.intact or self._is_unknown(reading):
            self.suspect = not reading.error
            self.dirty = False
            return []
        end = self.offset + sum(map(len, reading.runs)) + len(reading.rest)
        told = max(self._size, end)
        self._note_size(reading.size, now)
        self._end, self._modified = end, reading.modified
        self.dirty = end < reading.size
        settled = not self.dirty and self.is_settled(now, limits.grace)
        blocks = [self._take(run, run, now) for run in reading.runs]
        self._wants_whole_line = self.dirty and not blocks
        if not reading.is_complete:
            self._end = max(end, self.offset + 1)  # its end is waited for as that of a line is
            if settled or reading.damage:
                self._give_up(reading, told)
        elif settled and reading.rest:
            blocks.append(self._take(reading.rest, reading.rest + b"\n", now))
        return blocks

    def _is_unknown(self, reading: Reading) -> bool:
        # what the file begins with is to be looked at: it may be a hole, and one that was empty when it was seen may have
        # been written, copied and truncated since; an open one without a name can be looked at no more
        if not self.is_unread or self.unseen_since is not None or self.entry.packed is not None:
            return False
        first = reading.runs[0] if reading.runs else reading.rest
        is_hole = first.startswith(b"\0") and not self._is_looked_at
        return is_hole or (bool(first) and not self.beginning)

    def state(self) -> FileState:
        """Return what a person may want to know."""
        return FileState(
            path=self.entry.path if "/" in self.label else self.label,  # `-` is no path
            file=self.file,
            size=max(self._size, self._end),
            offset=self.offset,
            inode=self.entry.key.inode,
            held=self.held if not self.dirty else 0,
            seen=self.seen,
            since=self.stirred if self.dirty else None,
            stage=self._stage(),
            note=self.note,
        )

    def _note_size(self, size: int, now: int) -> None:
        # a file that stood still while its elders were read has been waited for
        if size > self._size:
            self._grew = now
        self._size = size

    def _stage(self) -> Stage:
        if self.suspect:
            return Stage.DOUBTFUL
        if self.unseen_since is not None:
            return Stage.DELETED
        return Stage.FOLLOWING if self.rotated is None else Stage.ROTATED

    def _give_up(self, reading: Reading, told: int) -> None:
        reason = reading.damage or "it ends too early"
        text = f"cannot be unpacked behind byte {self.offset} ({reason}): the rest is lost"
        self.loss = Notice(NoticeKind.DAMAGED, self.entry.path, text, told - self.offset)
        self.note = text
        self._end = self._size = self.offset

    def _take(self, run: bytes, lines: bytes, now: int) -> Block:
        start, continues = self.offset, self._pieces > 0
        if not continues:
            self.line_began = now
        self.offset += len(run)
        self._pieces = 0 if lines.endswith(b"\n") else self._pieces + 1
        self.seen = now
        self._print.took(run)
        section = Section(
            path=self.label,
            span=Span(self.file, start, self.offset),
            size=len(lines),
            lines=count_lines(lines),
            identity=self._print.identity(self.entry.key.inode),
        )
        return Block(section, lines, now, continues)
