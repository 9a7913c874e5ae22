"""How far a file is read, and what recognises it there: from bytes to blocks."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from nats_logship.wire.message import Identity, Rest, Section, Span
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.files.identity import (
    HEAD_BYTES,
    TAIL_BYTES,
    ContentHash,
    fingerprint,
    identify,
    is_inside_line,
)


class Search(NamedTuple):
    """How far the end of an over-long record was searched: the position to go on at.

    And the whole lines of the record up to there.
    """

    at: int
    lines: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What one read gives: whole records, the unfinished one behind them, and the bytes before.

    A record is a line unless `records` joins lines. `rest` is the unfinished record and
    `unfinished` its length; `rest` of an over-long one is empty. `holds_lines`: it has whole lines.
    `continues` and `goes_on`: the run begins and ends inside a record of several lines.
    `hole`: NULs behind the run that are left out. `padding`: NULs at the file's end that may be
    overwritten. `is_intact`: what had been read before is still there; if not, nothing was read.
    `is_complete` is False at the end of a compressed file whose last stream has no end; `damage`
    says why it cannot have one. `size` and `modified` (nanoseconds) are those of the file.
    `searched`: how far the end of an over-long record was searched, of which nothing is taken.
    """

    is_intact: bool
    size: int
    modified: int
    run: bytes = b""
    rest: bytes = b""
    tail: bytes = b""
    unfinished: int = 0
    hole: int = 0
    padding: int = 0
    error: str = ""
    is_complete: bool = True
    damage: str = ""
    records: str = ""
    holds_lines: bool = False
    continues: bool = False
    goes_on: bool = False
    searched: Search | None = None

    def reaches(self, length: int) -> bool:
        """Whether the run and the unfinished record have so many bytes."""
        return len(self.run) + self.unfinished == length

    def end_at_hole(self, hole: int) -> "Reading":
        """Return the reading with all its bytes as the run, before a hole of so many bytes."""
        return replace(
            self, run=self.run + self.rest, rest=b"", unfinished=0, hole=hole, holds_lines=False
        )


class Progress(NamedTuple):
    """The cursor of a followed file, and what was read of it. Each read makes another value."""

    file: str  # its id; stays through renames and restarts
    label: str  # the path in its cursors: a live path, or the one at which it was found
    offset: int  # the next byte to read, whether or not those before are acknowledged
    identity: Identity  # recognises the file at the offset
    seen: int  # when it was read last, in nanoseconds
    in_line: bool  # the offset is inside an over-long line or record, of which a piece was read
    beginning: bytes  # the first bytes that were ever seen; while they stay, it is the same file
    content: ContentHash  # of the first bytes that were read
    is_fresh: bool = False  # it was unknown when it was found, and nothing was read of it yet
    record_lines: int = 0  # of the record that the offset is inside
    searched: Search | None = None  # how far the end of the over-long record there was searched

    @classmethod
    def begin(cls, cursor: Cursor, inode: int, beginning: bytes) -> "Progress":
        """Return the progress of a file that begins so, at a cursor."""
        identity = cursor.identity._replace(inode=inode)
        return cls(
            file=cursor.file,
            label=cursor.path,
            offset=cursor.offset,
            identity=identity,
            seen=cursor.seen,
            in_line=bool(cursor.rest),
            beginning=beginning,
            content=ContentHash(),
        )

    @property
    def is_known(self) -> bool:
        """Whether more than its inode is known of the file; a sparse one has no first bytes."""
        return bool(self.beginning or self.offset)

    @property
    def cursor(self) -> Cursor:
        """Where the next line begins, and what recognises the file there."""
        identity, rest = self.identity, _rest(self.in_line)
        return Cursor(self.file, self.label, self.offset, identity, self.seen, rest=rest)

    @property
    def start(self) -> Cursor:
        """Where reading begins if nothing is stored.

        At 0 all first bytes that were ever seen recognise the file.
        """
        if self.is_fresh and self.offset:
            return self.cursor
        identity = identify(self.identity.inode, self.beginning[:HEAD_BYTES], b"")
        return Cursor(self.file, self.label, 0, identity, self.seen)

    @property
    def last(self) -> Cursor:
        """What is remembered of the file when it is not followed any more."""
        return self.cursor if self.offset else self.start

    def rewind(self, cursor: Cursor) -> "Progress":
        """Return the progress at another cursor of the file."""
        identity = cursor.identity._replace(inode=self.identity.inode)
        return self._replace(
            offset=cursor.offset,
            seen=cursor.seen,
            identity=identity,
            in_line=bool(cursor.rest),
            searched=None,
        )

    def accept(self, reading: Reading, now: int) -> tuple["Progress", list[Block]]:
        """Move behind the lines that were read, and the hole behind them."""
        progress, blocks = self, list[Block]()
        if reading.searched is not None:
            progress = self._replace(searched=reading.searched)
        if reading.records:
            progress = progress._replace(in_line=reading.continues)
        if reading.run:
            progress, block = progress.take(reading, reading.run, reading.tail, now)
            blocks.append(block)
        if reading.hole:
            progress, block = progress.leave_out(reading.hole, now)
            blocks.append(block)
        return progress, blocks

    def take(
        self, reading: Reading, run: bytes, before: bytes, now: int
    ) -> tuple["Progress", Block]:
        """Move behind bytes of a reading; `before` are the bytes before them."""
        tail = (before + run[-TAIL_BYTES:])[-TAIL_BYTES:]
        after = self._move(len(run), run, tail, now)
        # a third of the time that `bytes.count` takes for lines of 100 bytes
        count = len(run) - len(run.replace(b"\n", b""))
        span = Span(self.file, self.offset, after.offset)
        continues = is_inside_line(before) or (bool(reading.records) and self.in_line)
        goes_on = after.in_line or (reading.goes_on and run is reading.run)
        section = Section(
            path=self.label,
            span=span,
            size=len(run),
            lines=count,
            identity=after.identity,
            records=reading.records,
            rest=_rest(goes_on),
        )
        if goes_on and reading.records:
            lines = self.record_lines if continues else 0
            after = after._replace(in_line=True, record_lines=lines + count)
        return after, Block(section, run, now, continues, goes_on=goes_on)

    def leave_out(self, hole: int, now: int) -> tuple["Progress", Block]:
        """Move behind a hole of so many bytes; an empty block covers it."""
        nuls = bytes(min(hole, ContentHash.MOST))
        after = self._move(hole, nuls, nuls[:TAIL_BYTES], now)
        span = Span(self.file, self.offset, after.offset)
        rest = _rest(self.in_line)
        section = Section(self.label, span, 0, 0, after.identity, filtered=True, rest=rest)
        return after._replace(in_line=self.in_line), Block(section, b"", now)

    def _move(self, length: int, data: bytes, tail: bytes, now: int) -> "Progress":
        start, offset, beginning = self.offset, self.offset + length, self.beginning
        if start < HEAD_BYTES:
            read = (beginning[:start] + data[:HEAD_BYTES])[:HEAD_BYTES]
            beginning = read + beginning[len(read) :]
        identity = self.identity
        if start >= HEAD_BYTES == identity.head_length:
            head = identity.head_length, identity.head_hash
            identity = Identity(identity.inode, *head, len(tail), fingerprint(tail))
        else:
            identity = identify(identity.inode, beginning[:offset], tail)
        return Progress(
            file=self.file,
            label=self.label,
            offset=offset,
            identity=identity,
            seen=now,
            in_line=not data.endswith(b"\n"),
            beginning=beginning,
            content=self.content.add(start, data),
        )


def _rest(in_line: bool) -> Rest:
    return "kept" if in_line else ""  # unless a filter leaves it out
