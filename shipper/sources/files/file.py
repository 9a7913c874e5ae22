"""Follows one file: how far it has been read, what recognises it, and whether there is more."""

from dataclasses import replace

from nats_logship.wire.message import Section, Span
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.identity import (
    HEAD_BYTES,
    TAIL_BYTES,
    ContentHash,
    Sample,
    identify,
    is_inside_line,
)
from shipper.sources.files.reader import Reading
from shipper.sources.files.scan import FileEntry


class FollowedFile:
    """One followed file; its file id and label stay, its path is where it was seen last. Times are in nanoseconds.

    `home` is the live path whose writer wrote the file, `chain` names those that are read in order.

    `offset` is the next byte to read, not to acknowledge, `note` says what keeps it from being read, `seen` is when it was.

    `unseen_since` is when the file was found to be at no path, `since` when it was noticed that there may be something to
    read; each is None while it is not so. `held` are the bytes of an unfinished last line, `in_line` says that the offset is
    inside an over-long one; before `searched` there is no end of such a line.
    `padding` are the NULs at its end that are no content: they may be written over.
    `suspect`: what was read of the file may be gone, which the next scan finds out. `lost` bytes cannot be decompressed.
    `beginning` are the first bytes that were ever seen in the file; while they are there it was not written anew.
    `content` is the hash of what was read. `is_doubtful`: the file was written to and did not grow, so that it may have
    been written anew in place; `is_due`: it has not changed since that was seen. `is_another`: it was.
    `is_fresh` says that the file was never seen before, and that nothing was read of it.
    `turn` is its place in the order of its chain, None while that is not known.
    `is_linked` is False once the file has no name at all: nobody can find it again.
    """

    __slots__ = (  # there is one for each of ten thousand files
        "_grew",
        "_hole_end",
        "_left_out",
        "_modified",
        "_remarks",
        "_rotated_at",
        "_settling",
        "_was_padded",
        "beginning",
        "chain",
        "content",
        "descriptor",
        "entry",
        "file",
        "held",
        "home",
        "identity",
        "in_line",
        "is_another",
        "is_doubtful",
        "is_due",
        "is_fresh",
        "is_linked",
        "label",
        "lost",
        "note",
        "offset",
        "padding",
        "searched",
        "seen",
        "since",
        "size",
        "suspect",
        "turn",
        "unseen_since",
    )

    def __init__(self, cursor: Cursor, seen: Sample, home: str, now: int) -> None:
        """Follow from the cursor on, which may be inside a line."""
        entry = seen.entry
        self.home = self.chain = home
        self.file, self.label = cursor.file, cursor.path
        self.offset, self.seen = cursor.offset, cursor.seen
        self.is_fresh = False
        self.turn: int | None = None
        self.is_linked = True
        self.entry = entry
        self.descriptor = -1
        self.beginning = seen.beginning
        self.identity = replace(cursor.identity, inode=entry.key.inode)
        self.size = seen.size
        self.unseen_since: int | None = None
        self.since: int | None = now if seen.size > cursor.offset else None
        self.in_line = seen.held.get(cursor.file, False)
        self.held = self.searched = self.padding = 0
        self.suspect = False
        self.note = ""
        self.lost: int | None = None
        self._settling = now  # since when it has not grown, nor lost its name
        self._rotated_at = now  # when it lost its name, while it is rotated
        self.content = ContentHash()
        self.is_doubtful = self.is_due = self.is_another = False
        self._modified = entry.modified
        self._was_padded = False  # when it was written last
        self._left_out = self._hole_end = 0
        self._remarks: list[str] = []
        self._grew = False  # since it was found, at a path that shows it

    @property
    def is_open(self) -> bool:
        """Whether the file is held open: it can be read whatever becomes of its name, and its inode is not reused."""
        return self.descriptor >= 0

    @property
    def is_rotated(self) -> bool:
        """Whether the file is not at its live path any more; a link may show it at another one.

        A file that was found under the name of a rotated one, and grows there, is live: `job.1`
        beside `job`.
        """
        entry = self.entry
        if self.unseen_since is not None:
            return True
        if self._grew and entry.path == self.label:
            return False
        has_moved = entry.path != self.home and entry.real == entry.path
        return has_moved or not entry.is_live

    @property
    def path(self) -> str:
        """Where the file was seen last; `-` for standard input."""
        return self.entry.path if "/" in self.label else self.label

    @property
    def is_known(self) -> bool:
        """Whether more is known of the file than its inode; a sparse one has no first bytes."""
        return bool(self.beginning or self.offset)

    @property
    def end(self) -> int:
        """Where its content ends, as far as that is known."""
        return max(self.offset, self.size - self.padding)

    @property
    def stage(self) -> str:
        """What became of the file, in a word."""
        if self.suspect:
            return "doubtful"
        if self.unseen_since is not None:
            return "deleted"
        return "rotated" if self.is_rotated else "following"

    @property
    def cursor(self) -> Cursor:
        """Where the next line begins, and what the file looks like there."""
        return Cursor(self.file, self.label, self.offset, self.identity, self.seen)

    @property
    def start(self) -> Cursor:
        """Where reading begins if nothing is stored; at 0 the file is recognised by all that was ever seen of its first bytes."""
        if self.is_fresh and self.offset:
            return self.cursor
        identity = identify(self.entry.key.inode, self.beginning[:HEAD_BYTES], b"")
        return Cursor(self.file, self.label, 0, identity, self.seen)

    @property
    def last(self) -> Cursor:
        """What is remembered of the file when it is followed no longer."""
        return self.cursor if self.offset else self.start

    @property
    def dirty(self) -> bool:
        """Whether there is, or may be, something to read."""
        return self.since is not None

    def scanned(self, entry: FileEntry, home: str, now: int) -> None:
        """Take note of where the file is and how large it is; a compressed one is read on only when it changed."""
        has_changed, was_rotated = entry.differs(self.entry), self.is_rotated
        self.is_due = self.is_doubtful and entry.modified == self._modified
        self._note_time(entry.modified, entry.size)
        self.entry, self.home, self.unseen_since = entry, home, None
        self._note_name(now, was_rotated)
        self.suspect |= has_changed and not self.is_open
        if has_changed:
            self.mark_changed(now)
        if entry.compression is None and entry.size < self.size:
            self.suspect = True  # truncated; and it may grow beyond the offset before it is read
        elif entry.compression is None:
            self._note_size(entry.size, now)

    def unseen(self, reading: Reading, now: int) -> None:
        """Take note that the file, which is open, is at no path that we look at; it may still be written to.

        `reading` is what the file begins with, and when it was written last, which decides its place among the others.
        """
        was_rotated = self.is_rotated
        self.entry = replace(self.entry, modified=reading.modified or self.entry.modified)
        self.unseen_since = now if self.unseen_since is None else min(self.unseen_since, now)
        self._note_name(now, was_rotated)
        # truncated and then deleted: its rest may be in a copy
        self.suspect = not reading.intact
        if self.entry.compression is None and reading.intact:
            self.beginning = max(self.beginning, reading.run, key=len)
            self._note_size(max(self.size, reading.size), now)

    def _note_name(self, now: int, was_rotated: bool) -> None:
        # a clock that was set back would make newer files wait
        has_lost_name = self.is_rotated and not was_rotated
        if self._settling > now or has_lost_name:
            self._settling = now
        if self._rotated_at > now or has_lost_name:
            self._rotated_at = now

    def mark_changed(self, now: int) -> None:
        """Take note that there may be something to read."""
        if self.since is None:
            self.since = now

    def recognised(self, seen: Sample, now: int) -> None:
        """Take note of what the file looks like, once it is known to be the one it was."""
        self.suspect, self.searched = False, 0
        self.mark_changed(now)
        self.beginning = max(self.beginning, seen.beginning, key=len)
        self.size = seen.size
        self.in_line |= seen.held[self.file]

    def is_settled(self, now: int, grace: int) -> bool:
        """Whether the file was rotated away and has not grown for `grace` nanoseconds: its last line is finished."""
        return self.is_rotated and now >= self._settling + grace

    def is_waited_for(self, now: int, grace: int) -> bool:
        """Whether the files behind this one wait for the end of its last line.

        They wait for twice `grace` nanoseconds from the loss of its name on, however often it
        grows; for a compressed file until it is settled.
        """
        if not (self.held and self.is_rotated):
            return False
        return self.entry.compression is not None or now < self._rotated_at + 2 * grace

    def rewind(self, cursor: Cursor, now: int) -> None:
        """Read on from the cursor; a file that has a name is doubtful until the next scan."""
        if self.offset == cursor.offset:
            return
        self.offset, self.seen = cursor.offset, cursor.seen
        self.identity = replace(cursor.identity, inode=self.entry.key.inode)
        self.suspect |= self.unseen_since is None
        self.in_line, self.held, self.note = False, 0, ""
        # its last line is waited for again, and so do the files behind it
        self._settling = self._rotated_at = now
        self.mark_changed(now)

    def accept(self, reading: Reading, now: int, grace: int) -> list[Block]:
        """Take what was read: move the offset, and return the blocks.

        An unfinished last line is taken only when the file is settled, as a block of its own.
        """
        self.note, self.held = reading.error, 0
        if not reading.error:
            self._note_time(reading.modified, reading.size)
        if reading.error or not reading.intact or self._is_unknown(reading):
            self.suspect = not reading.error
            self.since = None
            if reading.error:  # the next scan takes it for changed, so that it is tried again
                self.entry = replace(self.entry, modified=0)
            return []
        end = self.offset + len(reading.run) + reading.held + reading.hole + reading.padding
        known = max(self.size, end)
        self._note_size(reading.size, now)
        blocks = self._take_run(reading, now)
        if end < reading.size:
            self.mark_changed(now)
            return blocks
        self.since = None
        self.held = reading.held
        settled = self.is_settled(now, grace)
        if not reading.is_complete:
            self.held = max(1, self.held)  # waited for as an unfinished line is
            if settled or reading.damage:
                reason = reading.damage or "it ends too early"
                self.note = (
                    f"cannot be decompressed behind byte {self.offset} ({reason}): the rest is lost"
                )
                self.lost, self.size, self.held = known - self.offset, self.offset, 0
        elif settled and reading.rest:
            before = (reading.tail + reading.run)[-TAIL_BYTES:]
            blocks.append(replace(self._take(reading.rest, before, now), is_rest=True))
            self.held = 0
        return blocks

    def _is_unknown(self, reading: Reading) -> bool:
        # it may have been written, copied and truncated since it was found empty; a deleted file cannot be sampled
        if self.offset or self.beginning or self.unseen_since is not None:
            return False
        return self.entry.compression is None and bool(reading.run or reading.rest)

    def _note_size(self, size: int, now: int) -> None:
        # its last line was waited for while older files were read, unless the file grew meanwhile
        if size > self.size:
            self._settling, self._grew = now, self.unseen_since is None
        self.size = size

    def _note_time(self, modified: int, size: int) -> None:
        """Take note of when the file was written last: a file that did not grow may have been written anew."""
        if modified != self._modified and self.entry.compression is None:
            self.is_doubtful = self.offset > 0 and size <= self.size
            self._was_padded = self.padding > 0
            self._modified = modified

    def note_comparison(self, is_same: bool) -> None:
        """Take note of whether the file still has what was read of it, as far as its content is known."""
        self.is_doubtful = self.is_due = False
        # an end that is allocated beforehand is written over, or cut off, without a remark
        if is_same and not self._was_padded:
            known = f"the same {self.content.length} first bytes"
            self._remarks.append(f"was touched, or written again with {known}: not shipped again")
        self.is_another = not is_same
        self.suspect |= not is_same

    def take_remarks(self) -> list[str]:
        """Return what is to be said of the file's content, once."""
        remarks, self._remarks = self._remarks, []
        if self._left_out:
            where = f"the last one ends at byte {self._hole_end}"
            remarks.append(f"has holes of {self._left_out} bytes, which are left out; {where}")
            self._left_out = 0
        return remarks

    def _take_run(self, reading: Reading, now: int) -> list[Block]:
        """Move behind the lines that were read, and the hole behind them."""
        blocks = [self._take(reading.run, reading.tail, now)] if reading.run else []
        blocks += [self._leave_out(reading.hole, now)] if reading.hole else []
        self.is_doubtful &= not blocks
        if reading.padding and not self.padding:
            what = f"has {reading.padding} NUL bytes at its end"
            self._remarks.append(f"{what}, which are shipped once they are written over")
        self.padding = reading.padding
        return blocks

    def _leave_out(self, hole: int, now: int) -> Block:
        """Move behind a hole; an empty block covers it."""
        start = self.offset
        self._note_beginning(start, bytes(min(hole, HEAD_BYTES)))
        self.content.add(start, bytes(min(hole, ContentHash.MOST)))
        self.offset += hole
        self.seen, self.is_fresh = now, False
        self._left_out, self._hole_end = self._left_out + hole, self.offset
        tail = bytes(min(hole, TAIL_BYTES))
        self.identity = identify(self.entry.key.inode, self.beginning[: self.offset], tail)
        span = Span(self.file, start, self.offset)
        section = Section(self.label, span, 0, 0, self.identity, filtered=True)
        return Block(section, b"", now)

    def _note_beginning(self, start: int, read: bytes) -> None:
        if start < HEAD_BYTES:
            read = (self.beginning[:start] + read)[:HEAD_BYTES]
            self.beginning = read + self.beginning[len(read) :]

    def _take(self, run: bytes, before: bytes, now: int) -> Block:
        """Move behind bytes that were read; `before` are the bytes before them."""
        start = self.offset
        self.in_line = not run.endswith(b"\n")
        self.offset += len(run)
        self.content.add(start, run)
        self.seen, self.is_fresh = now, False
        self._note_beginning(start, run)
        tail = (before + run[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.identity = identify(self.entry.key.inode, self.beginning[: self.offset], tail)
        span = Span(self.file, start, self.offset)
        # a third of the time that `bytes.count` takes for lines of 100 bytes
        count = len(run) - len(run.replace(b"\n", b""))
        section = Section(self.label, span, len(run), count, self.identity)
        return Block(section, run, now, is_inside_line(before))
