"""A followed file as a value: where it is, what state it is in, and whether there is more to read.

Every method returns another value; the catalogue keeps the newest one of each file. Times of waits
are in nanoseconds of the steady clock, which no step of the wall clock moves.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from nats_logship.wire.positions import Cursor
from shipper.clock import Now
from shipper.sources.block import Block
from shipper.sources.files.decide import Event, FileState, decide
from shipper.sources.files.identity import TAIL_BYTES, FileEntry, Sample
from shipper.sources.files.progress import Progress, Reading
from shipper.sources.files.records import LINES_ALONE, RecordRules
from shipper.sources.source import SourceState


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How files are read: runs of `block_size` bytes at most, or one line of `max_line` bytes.

    `open_files` files are open at most. The end of a line is waited for `grace` nanoseconds, a
    deleted file is held open for `hold`. `records` says which lines belong together.
    """

    block_size: int
    max_line: int
    open_files: int
    grace: int = 0
    hold: int = 0
    records: RecordRules = LINES_ALONE


class Accepted(NamedTuple):
    """A file after a read, and its lines; `lost` counts bytes that cannot be decompressed."""

    file: "FollowedFile"
    blocks: list[Block]
    lost: int | None = None


class FollowedFile(NamedTuple):
    """One followed file. There may be ten thousand, and each read makes another value."""

    home: str  # the live path whose writer wrote the file
    entry: FileEntry  # where a scan saw the file last
    state: FileState
    progress: Progress  # how far it is read

    # what was written
    size: int  # as far as it is known; of a compressed file that of the content
    modified: int  # when it was written last, since the epoch
    grown_at: int  # when it grew last, or lost its live path
    born: int = 0  # when it was made, since the epoch; 0 if its file system does not say
    has_grown: bool = False  # it grew since it was found, at a path that a scan saw
    is_touched: bool = False  # written to and not grown: it may have been rewritten in place
    was_padded: bool = False  # it had padding when it was written last

    # what there is to read
    readable_since: int | None = None  # when there was first something; None if there is nothing
    unfinished: int = 0  # bytes of an unfinished last record, which are not read yet
    holds_lines: bool = False  # whole lines are among them
    padding: int = 0  # NULs at its end that may be overwritten
    problem: str = ""  # why it cannot be read
    refused_at: int | None = None  # when it could not be read first; None once it can be

    # what became of its name
    unnamed_at: int = 0  # when it lost its live path, or was found
    unseen_since: int | None = None  # when a scan saw it at no path first
    is_linked: bool = True  # it has a name somewhere

    @classmethod
    def follow(cls, cursor: Cursor, sample: Sample, home: str, now: Now) -> "FollowedFile":
        """Return a file that is read from the cursor on, which may be inside a line."""
        inode = sample.entry.key.inode
        return cls(
            home=home,
            entry=sample.entry,
            state=FileState.FOLLOWED,
            progress=Progress.begin(cursor, inode, sample.beginning),
            size=sample.size,
            modified=sample.entry.modified,
            grown_at=now.steady,
            born=sample.born,
            unnamed_at=now.steady,
            readable_since=now.steady if sample.size > cursor.offset else None,
        )

    @property
    def file(self) -> str:
        """Its id."""
        return self.progress.file

    @property
    def offset(self) -> int:
        """The next byte to read."""
        return self.progress.offset

    @property
    def path(self) -> str:
        """Where a scan saw the file last."""
        return self.entry.path

    @property
    def end(self) -> int:
        """Where its content ends, as far as it is known."""
        return max(self.offset, self.size - self.padding)

    @property
    def is_doubtful(self) -> bool:
        """Whether it is not read until a sample shows that it still has what was read of it."""
        return self.state is FileState.DOUBTFUL

    @property
    def is_inside_record(self) -> bool:
        """Whether the offset is inside a record, of which more can be read now or once it ended."""
        return self.progress.in_line and (self.readable_since is not None or self.holds_lines)

    @property
    def is_read(self) -> bool:
        """Whether there is nothing more to read, as far as it is known."""
        return self.readable_since is None and not self.unfinished and self.refused_at is None

    @property
    def is_partly_searched(self) -> bool:
        """Whether the end of an over-long record was searched in a part of what can be read."""
        is_searched = self.progress.searched is not None and not self.problem
        return is_searched and self.readable_since is not None

    @property
    def is_rotated(self) -> bool:
        """Whether the file is not at its live path any more; a link may show it at another one.

        A file that was found under the name of a rotated one and grows there is live: `job.1`
        beside `job`.
        """
        if self.unseen_since is not None:
            return True
        entry = self.entry
        if self.has_grown and entry.path == self.progress.label:
            return False
        has_moved = entry.path != self.home and entry.real == entry.path
        return has_moved or not entry.is_live

    def describe(self, now: Now, limits: ReadLimits) -> SourceState:
        """Return what others see of it."""
        since = self.readable_since
        is_held = self.holds_lines or self.is_partly_searched
        return SourceState(
            file=self.file,
            path=self.path,
            condition=self._condition,
            position=self.offset,
            end=self.end,
            readable_since=None if since is None else now.date(since),
            unfinished=self.unfinished,
            problem=self.problem,
            is_awaited=is_held or self.is_waited_for(now, limits),
            inode=self.entry.key.inode,
        )

    @property
    def _condition(self) -> str:
        if self.is_doubtful:
            return "doubtful"
        if self.unseen_since is not None:
            return "deleted"
        return "rotated" if self.is_rotated else "following"

    def is_at_rest(self, now: Now, limits: ReadLimits) -> bool:
        """Whether it was rotated and did not grow for the grace.

        Its last line is then taken as finished, with or without a newline.
        """
        return self.is_rotated and now.steady >= self.grown_at + limits.grace

    def is_waited_for(self, now: Now, limits: ReadLimits) -> bool:
        """Whether the files behind this one wait for the end of its last line, or for an error's.

        They wait for at most twice the grace after the file lost its live path, however often it
        grows; if it is compressed, until it is at rest. They wait as long after the first error.
        """
        if not self.is_rotated:
            return False
        if self.refused_at is not None:
            return not self.is_passed_over(now, limits)
        if not self.unfinished:
            return False
        return self.entry.compression is not None or now.steady < self.unnamed_at + 2 * limits.grace

    def is_held_too_long(self, now: Now, limits: ReadLimits) -> bool:
        """Whether no scan saw it for longer than it is held open."""
        return self.unseen_since is not None and now.steady > self.unseen_since + limits.hold

    def is_passed_over(self, now: Now, limits: ReadLimits) -> bool:
        """Whether it could not be read for so long that the files behind it go first."""
        return self.refused_at is not None and now.steady >= self.refused_at + 2 * limits.grace

    def is_quiet(self, now: Now, limits: ReadLimits) -> bool:
        """Whether lines wait for the end of their record, and it did not grow for the timeout."""
        return self.holds_lines and now.steady >= self.grown_at + limits.records.timeout

    def has_ended(self, now: Now, limits: ReadLimits) -> bool:
        """Whether more of its last record is waited for no longer."""
        return self.is_at_rest(now, limits) or self.is_quiet(now, limits)

    def is_due(self, now: Now, limits: ReadLimits) -> bool:
        """Whether something can be read: new bytes, or a last record that has ended."""
        if self.readable_since is not None:
            return True
        return bool(self.unfinished) and self.has_ended(now, limits)

    # what scans and samples show

    def note_seen(self, entry: FileEntry, home: str, state: FileState, now: Now) -> "FollowedFile":
        """Return the file where a scan saw it; a compressed one is read on only if it changed."""
        is_same = entry == self.entry and home == self.home and state is self.state
        is_as_noted = self.unseen_since is None and entry.modified == self.modified
        is_known_size = entry.compression is not None or entry.size <= self.size
        if is_same and is_as_noted and is_known_size:
            return self
        file = self._replace(entry=entry, home=home, state=state, unseen_since=None)
        file = file._note_name(now, self.is_rotated)
        if entry.differs(self.entry):
            file = file.mark(now)
        if entry.compression is not None:
            return file._replace(modified=entry.modified)
        return file._note_write(entry.modified, max(self.size, entry.size), now)

    def note_unseen(self, sample: Sample | None, is_linked: bool, now: Now) -> "FollowedFile":
        """Return the open file, which a scan saw at no path; it may still be written to.

        The time of its last write decides its place among the others.
        """
        since = now.steady if self.unseen_since is None else self.unseen_since
        file = self._replace(unseen_since=since, is_linked=is_linked)
        file = file._note_name(now, self.is_rotated)
        if sample is None:
            return file
        file = file._replace(entry=sample.entry)
        if self.is_in(sample):
            size = max(self.size, sample.size)
            file = file._note_beginning(sample.beginning)._note_write(self.modified, size, now)
        return file

    def is_in(self, sample: Sample) -> bool:
        """Whether a sample of the file has all that was read and seen of it."""
        begins_alike = sample.head.startswith(self.progress.beginning)
        return begins_alike and sample.has_all(self.progress.cursor)

    def note_sample(self, sample: Sample, now: Now) -> "FollowedFile":
        """Return the file with what a sample shows, which has all that was read of it."""
        file = self._note_beginning(sample.beginning).mark(now)
        progress = file.progress._replace(searched=None)
        return file._replace(progress=progress, size=sample.size)

    def mark(self, now: Now) -> "FollowedFile":
        """Return the file, marked as perhaps having more to read."""
        return self if self.readable_since is not None else self._replace(readable_since=now.steady)

    def note_content(self, head: bytes) -> "FollowedFile":
        """Return the file with the hash of its first bytes, which another run read."""
        content = self.progress.content.add(0, head)
        return self._replace(progress=self.progress._replace(content=content))

    def rewind(self, cursor: Cursor, now: Now) -> "FollowedFile":
        """Return the file to be read from the cursor on; one that has a path is sampled first."""
        if self.offset == cursor.offset:
            return self
        return self._replace(
            state=decide(self.state, Event.DOUBTED).state,
            progress=self.progress.rewind(cursor),
            unfinished=0,
            holds_lines=False,
            problem="",
            # its last line is waited for again, and so do the files behind it
            grown_at=now.steady,
            unnamed_at=now.steady,
        ).mark(now)

    def _note_beginning(self, beginning: bytes) -> "FollowedFile":
        known = max(self.progress.beginning, beginning, key=len)
        return self._replace(progress=self.progress._replace(beginning=known))

    def _note_name(self, now: Now, was_rotated: bool) -> "FollowedFile":
        if self.is_rotated and not was_rotated:
            return self._replace(grown_at=now.steady, unnamed_at=now.steady)
        return self

    def _note_write(self, modified: int, size: int, now: Now) -> "FollowedFile":
        """Return the file as a write left it."""
        file = self._note_touch(modified, size)
        if size <= self.size:
            return file._replace(size=size)
        # the last line was waited for while older files were read, unless the file grew
        return file._replace(size=size, grown_at=now.steady, has_grown=self.unseen_since is None)

    def _note_touch(self, modified: int, size: int) -> "FollowedFile":
        """Return the file with the time of a write; without growth it may be a rewrite."""
        if modified == self.modified or self.entry.compression is not None:
            return self
        is_touched = size <= self.size and self.offset > 0
        was_padded = self.padding > 0
        return self._replace(modified=modified, is_touched=is_touched, was_padded=was_padded)

    # what is read

    def accept(self, reading: Reading, now: Now, limits: ReadLimits) -> Accepted:
        """Return the file behind what was read, and the lines as blocks.

        An unfinished last record is taken only if the file is at rest, as a block of its own; its
        whole lines also if it did not grow for the timeout.
        """
        if reading.error or not reading.is_intact or self._may_be_another(reading):
            return Accepted(self._reject(reading, now), [])
        progress, blocks = self.progress.accept(reading, now.wall)
        end = progress.offset + reading.unfinished + reading.padding
        has_more = end < reading.size
        file = self._note_write(reading.modified, reading.size, now).mark(now)
        file = file._replace(
            is_touched=file.is_touched and not blocks,
            progress=progress,
            readable_since=file.readable_since if has_more else None,
            unfinished=0 if has_more else reading.unfinished,
            holds_lines=not has_more and reading.holds_lines,
            padding=reading.padding,
            problem="",
            refused_at=None,
        )
        if has_more:
            return Accepted(file, blocks)
        if not reading.is_complete:
            if file.is_at_rest(now, limits) or reading.damage:
                return file._give_up(reading, blocks, max(self.size, end))
            # its end is waited for as that of an unfinished line
            return Accepted(file._replace(unfinished=max(1, file.unfinished)), blocks)
        if not reading.rest or not file.has_ended(now, limits):
            return Accepted(file, blocks)
        is_whole = file.is_at_rest(now, limits)
        lines = reading.rest if is_whole else reading.rest[: reading.rest.rfind(b"\n") + 1]
        return file._take(reading, lines, blocks, now)

    def _take(self, reading: Reading, run: bytes, blocks: list[Block], now: Now) -> Accepted:
        """Take the first bytes of the unfinished record, of which no more is waited for."""
        before = (reading.tail + reading.run)[-TAIL_BYTES:]
        progress, block = self.progress.take(reading, run, before, now.wall)
        blocks.append(replace(block, is_rest=block.goes_on))
        left = self.unfinished - len(run)
        return Accepted(
            self._replace(progress=progress, unfinished=left, holds_lines=False), blocks
        )

    def _may_be_another(self, reading: Reading) -> bool:
        # it may have been written, copied and truncated since it was found empty; a deleted file
        # cannot be sampled
        if (
            self.progress.is_known
            or self.unseen_since is not None
            or self.entry.compression is not None
        ):
            return False
        return bool(reading.run or reading.rest)

    def _reject(self, reading: Reading, now: Now) -> "FollowedFile":
        if reading.error:
            return self.refuse(reading.error, now)
        file = self._replace(
            problem="", refused_at=None, unfinished=0, holds_lines=False, readable_since=None
        )
        return file._note_touch(reading.modified, reading.size)._replace(
            state=decide(self.state, Event.DOUBTED).state
        )

    def refuse(self, problem: str, now: Now) -> "FollowedFile":
        """Return the file with why it cannot be read now; the next scan has it tried again."""
        return self._replace(
            problem=problem,
            refused_at=now.steady if self.refused_at is None else self.refused_at,
            unfinished=0,
            holds_lines=False,
            readable_since=None,
            entry=replace(self.entry, modified=0),  # so that a scan takes it for changed
        )

    def _give_up(self, reading: Reading, blocks: list[Block], expected_size: int) -> Accepted:
        """Give up the rest of a compressed file, whose content was expected to be so large."""
        reason = reading.damage or "it ends too early"
        problem = f"cannot be decompressed behind byte {self.offset} ({reason}): the rest is lost"
        file = self._replace(unfinished=0, problem=problem, size=self.offset)
        return Accepted(file, blocks, lost=expected_size - self.offset)
