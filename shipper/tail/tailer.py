"""Follows one file: how far it has been read, what recognises it, and whether there is more; and whose turn it is to be read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from broker.wire.message import Section, Span
from broker.wire.positions import Cursor
from shipper.tail.identity import HEAD_BYTES, TAIL_BYTES, Sample, identify, is_inside_line
from shipper.tail.reader import Block, Reading, count_lines
from shipper.tail.scan import FileEntry

_LINE_PATIENCE = 1_000_000_000
"""Nanoseconds that an over-long line may keep all other files waiting."""


class Tailer:
    """One followed file; its file id and label stay, its path is where it was seen last. Times are in nanoseconds.

    `offset` is the next byte to read, not to acknowledge, `note` says what keeps it from being read, `seen` is when it was.

    `rotated` is when the file was found to be no longer at its live path, `unseen_since` when it was found to be at no path,
    `since` when it was noticed that there may be something to read; each is None while it is not so. `line_began` is when
    the first piece of the over-long line was read that the offset is in. `held` are the bytes of an unfinished last line.
    `suspect`: what was read of the file may be gone, which the next scan finds out. `lost` bytes cannot be decompressed.
    `beginning` are the first bytes that were ever seen in the file; while they are there it was not written anew.
    `is_fresh` says that the file was never seen before, and that nothing was read of it.
    """

    def __init__(self, cursor: Cursor, seen: Sample, now: int, *, is_in_line: bool) -> None:
        """Follow from the cursor on, which may be inside a line."""
        entry = seen.entry
        self.file, self.label = cursor.file, cursor.path
        self.offset, self.seen = cursor.offset, cursor.seen
        self.is_fresh = False
        self.entry = entry
        self.descriptor = -1
        self.beginning = seen.head
        self.identity = replace(cursor.identity, inode=entry.key.inode)
        self.size = seen.size
        self.rotated: int | None = None if entry.is_live else entry.modified
        self.unseen_since: int | None = None
        self.since: int | None = now if seen.size > cursor.offset else None
        self.line_began: int | None = now if is_in_line else None
        self.held = 0
        self.suspect = False
        self.note = ""
        self.lost: int | None = None
        self._modified = 0 if self.dirty else entry.modified
        self._grew = now

    @property
    def is_open(self) -> bool:
        """Whether the file is held open: it can be read whatever becomes of its name, and its inode is not reused."""
        return self.descriptor >= 0

    @property
    def path(self) -> str:
        """Where the file was seen last; `-` for standard input."""
        return self.entry.path if "/" in self.label else self.label

    @property
    def stage(self) -> str:
        """What became of the file, in a word."""
        if self.suspect:
            return "doubtful"
        if self.unseen_since is not None:
            return "deleted"
        return "following" if self.rotated is None else "rotated"

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

    @property
    def is_in_line(self) -> bool:
        """Whether the offset is inside an over-long line that was begun less than a second before it was last read."""
        return self.line_began is not None and self.seen < self.line_began + _LINE_PATIENCE

    def scanned(self, entry: FileEntry, now: int) -> None:
        """Take note of where the file is and how large it is; a compressed one is read on only when it changed."""
        before, self.entry = self.entry, entry
        self.suspect |= entry.differs(before) and not self.is_open
        self._lost_name(now)
        self.unseen_since = None
        if entry.is_live:
            self.rotated = None
        if entry.packing is not None:
            if entry.differs(before):
                self.mark_changed(now)
        elif entry.size < self.size:
            self.suspect = True  # truncated; and it may grow beyond the offset before it is read
        else:
            if (entry.size, entry.modified) != (self.size, self._modified):
                self.mark_changed(now)
            self._note_size(entry.size, now)

    def unseen(self, now: int, modified: int) -> None:
        """Take note that the file is at no path that we look at; it may still be open, and written to.

        `modified` is when it was written last, which decides its place among the others; 0 when that is not known.
        """
        self.entry = replace(self.entry, modified=modified or self.entry.modified)
        self.unseen_since = now if self.unseen_since is None else min(self.unseen_since, now)
        self._lost_name(now)
        if self.entry.packing is None:
            self.mark_changed(now)

    def _lost_name(self, now: int) -> None:
        # a clock that was set back would make newer files wait
        self.rotated = now if self.rotated is None else min(self.rotated, now)
        self._grew = min(self._grew, now)

    def mark_changed(self, now: int) -> None:
        """Take note that there may be something to read."""
        if self.since is None:
            self.since = now

    def recognised(self, seen: Sample, now: int) -> None:
        """Take note of what the file looks like, once it is known to be the one it was."""
        self.suspect = False
        self.mark_changed(self._grew)
        self.beginning = max(self.beginning, seen.head, key=len)
        self.size = seen.size
        if self.line_began is None and seen.held[self.file]:
            self.line_began = now

    def is_settled(self, now: int, grace: int) -> bool:
        """Whether the file was rotated away and has not grown for `grace` nanoseconds: its last line is finished."""
        return self.rotated is not None and now >= max(self.rotated, self._grew) + grace

    def rewind(self, cursor: Cursor, now: int) -> None:
        """Read on from the cursor; a file that has a name is doubtful until the next scan."""
        if self.offset == cursor.offset:
            return
        self.offset, self.seen = cursor.offset, cursor.seen
        self.identity = replace(cursor.identity, inode=self.entry.key.inode)
        self.suspect |= self.unseen_since is None
        self.line_began, self.held, self.note = None, 0, ""
        self._modified, self._grew = 0, now
        self.mark_changed(now)

    def accept(self, reading: Reading, now: int, grace: int) -> list[Block]:
        """Take what was read: move the offset, and return the blocks.

        An unfinished last line is taken only when the file is settled, with a newline added that no span counts.
        """
        self.note, self.held = reading.error, 0
        if reading.error or not reading.intact or self._is_unknown(reading):
            self.suspect = not reading.error
            self.since, self._modified = None, 0
            return []
        end = self.offset + len(reading.run) + len(reading.rest)
        known = max(self.size, end)
        self._note_size(reading.size, now)
        self._modified = reading.modified
        blocks = [self._take(reading.run, reading.tail, now)] if reading.run else []
        if end < reading.size:
            self.mark_changed(now)
            return blocks
        self.since = None
        self.held = len(reading.rest)
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
            blocks.append(self._take(reading.rest, before, now, b"\n"))
            self.held = 0
        return blocks

    def _is_unknown(self, reading: Reading) -> bool:
        # it may have been written, copied and truncated since it was found empty; a deleted file cannot be sampled
        if self.offset or self.beginning or self.unseen_since is not None:
            return False
        return self.entry.packing is None and bool(reading.run or reading.rest)

    def _note_size(self, size: int, now: int) -> None:
        # its last line was waited for while older files were read, unless the file grew meanwhile
        if size > self.size:
            self._grew = now
        self.size = size

    def _take(self, run: bytes, before: bytes, now: int, end: bytes = b"") -> Block:
        """Move behind bytes that were read; `before` are the bytes before them, `end` is added to the lines."""
        start, lines = self.offset, run + end if end else run
        if lines.endswith(b"\n"):
            self.line_began = None
        elif self.line_began is None:
            self.line_began = now
        self.offset += len(run)
        self.seen, self.is_fresh = now, False
        if start < HEAD_BYTES:
            read = (self.beginning[:start] + run)[:HEAD_BYTES]
            self.beginning = read + self.beginning[len(read) :]
        tail = (before + run[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.identity = identify(self.entry.key.inode, self.beginning[: self.offset], tail)
        span = Span(self.file, start, self.offset)
        section = Section(self.label, span, len(lines), count_lines(lines), self.identity)
        return Block(section, lines, now, is_inside_line(before))


class Turns:
    """The rotation groups that may have something to read, in the order of their turns.

    Nothing comes between the pieces of an over-long line while its rest is there, or has been waited for less than a second.
    """

    def __init__(self) -> None:
        self._queue: dict[str, None] = {}
        self._line: Tailer | None = None

    def join(self, groups: Iterable[str]) -> None:
        """Put groups at the end of the queue; those that are in it keep their place."""
        self._queue.update(dict.fromkeys(groups))

    def leave(self, group: str) -> None:
        """Take a group out of the queue until it joins again; nobody waits for a line of it any more."""
        self._queue.pop(group, None)
        if self._line is not None and self._line.entry.group == group:
            self._line = None

    def next(
        self, chains: Mapping[str, Sequence[Tailer]], now: int, grace: int, most: int
    ) -> list[Tailer]:
        """Return the next `most` files to read; `grace` is in nanoseconds. Groups that have nothing leave the queue.

        One compressed file at most, since each takes memory to decompress.
        """
        if (line := self._line) is not None and line.dirty and not line.suspect:
            return [line]
        if self.is_held(now):
            return []
        ready: list[Tailer] = []
        for group in list(self._queue):
            first = _first(chains.get(group, ()))
            if first is None:
                self.leave(group)
            elif (first.dirty or first.is_settled(now, grace)) and not (
                first.entry.packing and any(one.entry.packing for one in ready)
            ):
                ready.append(first)
            if len(ready) >= most:
                break
        return ready

    def was_read(self, tailer: Tailer) -> None:
        """Put the group of a file that was read at the end of the queue; of a compressed one, when it was read to its end."""
        if tailer.entry.packing is None:
            self.leave(tailer.entry.group)
        self.join([tailer.entry.group])
        if tailer.is_in_line:
            self._line = tailer
        elif self._line is tailer:
            self._line = None

    def resume(self, tailers: Iterable[Tailer]) -> None:
        """Go on in the line that was read last of these files, if the offset of one is in a line."""
        begun = (tailer for tailer in tailers if tailer.is_in_line)
        self._line = max(begun, key=lambda tailer: tailer.seen, default=None)

    def is_held(self, now: int) -> bool:
        """Whether all files wait for the rest of a line, which is still being written; a second at most."""
        line = self._line
        if line is None or line.line_began is None or line.dirty or line.suspect:
            return False
        # a clock that was set back would make all files wait until it is there again
        return line.line_began <= now < line.line_began + _LINE_PATIENCE


def _first(chain: Iterable[Tailer]) -> Tailer | None:
    # which file those behind it wait for; behind a doubtful one nobody knows what comes next
    for tailer in chain:
        if tailer.suspect:
            return None
        if tailer.dirty or (tailer.held and tailer.rotated is not None):
            return tailer
    return None
