"""Reads the journals of a folder, one run of `journalctl` after the other, in the calling thread.

A run that ends without an error has printed all that `journalctl` can read of a journal. If the
journal's files have been renamed meanwhile it may have missed some: it is repeated.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nats_logship.app.timestamps import format_time
from nats_logship.wire.positions import Cursor
from shipper.sources.block import Block
from shipper.sources.journal.entries import EntryParser, JournalEntry
from shipper.sources.journal.format import JsonForm, ShortForm
from shipper.sources.journal.headers import JournalFile
from shipper.sources.journal.journal import Journal, list_turns, time_of
from shipper.sources.journal.journals import Journals
from shipper.sources.journal.process import PROGRAM, Run, command, find_unopenable
from shipper.sources.journal.rules import NAMES, Options
from shipper.sources.notices import Notice, NoticeKind

_READ = 1024 * 1024  # bytes of what journalctl prints, at a time
_PRINTED = 8  # bytes that journalctl prints for a byte of a line, or more
_PATIENCE = 0.02  # seconds in which more may come, which makes larger rounds
_MOST_HELD = 5 * 1024 * 1024  # bytes of an entry: the longest line, 4 MiB, and what is around it
_LONGEST_SILENCE = 60.0  # seconds in which a run prints nothing
_COVER_EVERY = 5.0  # seconds after which entries that are left out are covered
_SETTLED = 5.0  # seconds after which an entry that cannot be read is not still being written
_LONGEST_PAUSE = 60.0  # seconds after failures
_WORK_SHARE, _LONGEST_WAIT = 100, 1.0  # small runs, and scans, take a hundredth of the time
_TURN = 5.0  # seconds of a run
_LONGEST_GATHERING = 1.0  # seconds, also if all entries are left out
_SMALL = 256 * 1024  # bytes


class _Reading(NamedTuple):
    """A run about a journal: its files by path and first entry, and its last entry then."""

    journal: Journal
    files: frozenset[tuple[str, int]]
    last: int
    run: Run
    parser: EntryParser
    began: float


class JournalReader:
    """Reads journals; used by one thread at a time. `clock` is nanoseconds since the epoch."""

    def __init__(
        self, options: Options, new_id: Callable[[], str], clock: Callable[[], int]
    ) -> None:
        self.journals = Journals(options, new_id, clock)
        self.rules = options.rules
        self._options, self._clock = options, clock
        self._reading: _Reading | None = None
        self._form = JsonForm() if options.is_json else ShortForm()
        self._turns: deque[Journal] = deque()  # journals to read before headers are read again
        self._next_check = 0.0  # of headers, by the monotonic clock
        self._covered_at = time.monotonic()
        self._size = 0  # bytes of lines of the present run
        self.resize(256 * 1024, 1024 * 1024)

    def resize(self, block_size: int, max_entry: int) -> None:
        """Make blocks of this size, and cut longer entries, in bytes."""
        self._block_size, self._max_entry = block_size, max_entry

    def rewind(self, cursors: Mapping[str, Cursor]) -> None:
        """Forget what was read, and read on from these cursors."""
        self.close()
        self.journals.rewind(cursors)

    def close(self) -> None:
        """End the run."""
        if self._reading is not None:
            self._reading.run.kill()
        self._reading = None

    @property
    def output(self) -> int | None:
        """The descriptor from which more can be read soon; None if nothing runs."""
        return None if self._reading is None else self._reading.run.output

    @property
    def pause(self) -> float:
        """The seconds until the next run may begin, or the present one has been silent too long."""
        if self._reading is not None:
            return max(0.0, _LONGEST_SILENCE - self._reading.run.silence)
        unread = (one.next_run for one in self.journals.there if one.is_unread)
        return max(0.0, min(unread, default=0.0) - time.monotonic())

    def gather(self, budget: int) -> list[Block]:
        """Return about `budget` bytes of lines that can be read now."""
        blocks: list[Block] = []
        until = time.monotonic() + _LONGEST_GATHERING
        while budget > 0 and (reading := self._reading or self._begin_run()):
            data = reading.run.read(min(_READ, _PRINTED * budget), _PATIENCE)
            if data is None:
                if not self.pause:
                    problem = f"has printed nothing for {_LONGEST_SILENCE:.0f} seconds"
                    self._give_up(reading.journal, problem)
                break
            found = self._read_on(reading, data)
            size = sum(len(one.lines) for one in found)
            self._size, budget = self._size + size, budget - size
            blocks += found
            if time.monotonic() > until:
                break
        return blocks + self._pass_over_gone() + self._cover_left_out()

    # a run

    def _begin_run(self) -> _Reading | None:
        """Begin the next run, if one is due: one journal with unread entries after the other."""
        now = time.monotonic()
        if not self._turns and now >= self._next_check:
            self.journals.check_headers()
            self._next_check = _end_of_pause(now)
            for one in self.journals.there:
                if now > one.retry_at:
                    one.unopened = {}
            self._turns.extend(list_turns(self.journals.there, now))
        self._size = 0
        while self._turns and self._reading is None:
            journal = self._turns.popleft()
            if self.journals.found.get(journal.name) is journal and journal.is_unread:
                self._reading = self._start(journal)
        return self._reading

    def _start(self, journal: Journal) -> _Reading | None:
        # the entry before the position shows whether the journal is the same
        first = max(1, journal.position - bool(journal.mark))
        files, form = journal.files_from(first), self._form
        fields = [*form.names, *NAMES] if journal.is_narrow and form.names else []
        arguments = command(fields, journal.name, first, [f.path for f in files])
        try:
            run = Run(arguments)
        except OSError as error:
            self._fail(journal, f"{PROGRAM} cannot be run: {error.strerror}")
            return None
        return _Reading(
            journal=journal,
            files=_names(files),
            last=journal.end - 1,
            run=run,
            parser=EntryParser(form, self.rules),
            began=time.monotonic(),
        )

    def _read_on(self, reading: _Reading, data: bytes) -> list[Block]:
        """Return blocks of what a run has printed; ends the run when that is due."""
        entries = reading.parser.feed(data)
        blocks = self._take(reading, entries)
        if self._reading is None:
            pass  # the run is to be repeated
        elif not data:
            self._finish(reading)
        elif reading.parser.unfinished > _MOST_HELD:
            blocks += self._cut_short(reading)
        elif entries and time.monotonic() - reading.began > _TURN:
            self.close()  # other journals may wait
        return blocks

    def _finish(self, reading: _Reading) -> None:
        """End a run that has printed all that it can."""
        self._reading, journal = None, reading.journal
        problem, reported = reading.run.finish()
        if problem:
            if not self._leave_out_unopenable(reading):
                self._fail(journal, problem)
            return
        journal.failures, journal.problem, journal.is_narrow = 0, "", False
        for text in reported:
            self.journals.report_once(NoticeKind.DAMAGED, text)
        if self._size < _SMALL:
            journal.next_run = _end_of_pause(reading.began)
        if journal.position <= reading.last:
            self._doubt_last_entries(reading)
        elif journal.shipped:
            self.journals.begin_again(journal)

    def _leave_out_unopenable(self, reading: _Reading) -> bool:
        """Return whether a run may succeed now: without bad files, or as files were renamed."""
        journal = reading.journal
        reasons = find_unopenable([path for path, _ in reading.files])
        self.journals.check_headers()
        is_changed = not reading.files <= _names(journal.files)
        if journal.leave_out(reasons):
            journal.retry_at = time.monotonic() + _LONGEST_PAUSE
            is_changed = True
        for text in journal.describe_unopened():
            self.journals.report_once(NoticeKind.DAMAGED, text)
        return is_changed

    def _doubt_last_entries(self, reading: _Reading) -> None:
        """Wait no longer for last entries that nobody prints, once they are not being written.

        A header may be wrong, so they are no gap before a later entry is printed.
        """
        journal, now = reading.journal, time.monotonic()
        if journal.silent[0] != journal.position:
            journal.silent = journal.position, now
        if now - journal.silent[1] < _SETTLED or not self._has_all_files(reading, reading.last + 1):
            return
        journal.doubted |= {*journal.files_from(journal.position)}
        text = f"entries {journal.position} to {reading.last} of journal {journal.name}"
        self.journals.report_once(NoticeKind.DAMAGED, f"{text} cannot be read")

    def _give_up(self, journal: Journal, problem: str) -> None:
        self.close()
        self._fail(journal, f"{PROGRAM} {problem}")

    def _fail(self, journal: Journal, problem: str) -> None:
        journal.failures += 1
        journal.problem = problem
        self.journals.report_once(NoticeKind.UNREADABLE, f"{problem}; trying again")
        journal.next_run = time.monotonic() + min(_LONGEST_PAUSE, 2.0 ** min(journal.failures, 10))

    # its entries

    def _take(self, reading: _Reading, entries: Iterable[JournalEntry]) -> list[Block]:
        """Return blocks of entries; ends a run that is to be repeated."""
        journal, blocks = reading.journal, list[Block]()
        lines, size, longest, most = list[bytes](), 0, self._max_entry, self._block_size
        for entry in entries:
            number, mark, text = entry
            if number != journal.position:
                is_last = number == journal.position - 1 and journal.mark
                if number < journal.position and (not is_last or mark == journal.mark):
                    continue
                blocks += self._make_block(journal, lines)
                lines, size = [], 0
                if not self._reach(reading, entry, blocks):
                    self.close()
                    journal.next_run = time.monotonic() + _LONGEST_WAIT
                    return blocks
            if not text or len(text) > longest or journal.shipped:
                text = self._select(journal, entry)
            journal.position = number + 1
            journal.mark = mark
            if text:
                lines.append(text)
                size += len(text)
                if size >= most:
                    blocks += self._make_block(journal, lines)
                    lines, size = [], 0
            else:
                journal.has_left_out = True
        return blocks + self._make_block(journal, lines)

    def _reach(self, reading: _Reading, entry: JournalEntry, blocks: list[Block]) -> bool:
        """Pass over missing numbers before an entry; False if the run is to be repeated."""
        journal = reading.journal
        if entry.number < journal.position:
            self.journals.begin_again(journal)
            return False
        if not self._has_all_files(reading, entry.number):
            return False
        blocks += self._pass_over(journal, entry.number, time_of(entry.mark))
        return True

    def _has_all_files(self, reading: _Reading, end: int) -> bool:
        """Return whether the run was about all files that may have entries below `end`."""
        journal = reading.journal
        self.journals.check_headers()
        if self.journals.folder.may_recover or self.journals.found.get(journal.name) is not journal:
            return False
        files = journal.files_from(journal.position)
        return _names(one for one in files if one.head < end) <= reading.files

    def _pass_over(self, journal: Journal, end: int, until: int) -> list[Block]:
        """Leave a gap for missing entries `[position, end)` that are lost; cover those before.

        `until` is the time of the entry behind them, or of the last one, in microseconds.
        """
        start = journal.position
        files = [file for one in self.journals.found.values() for file in one.trusted]
        if not (lost := journal.holes.count_lost(start, end, journal.name, files)):
            return []
        blocks = [journal.cover(b"", self._clock())]  # a gap is between two sections
        journal.covered = journal.position = start + lost
        begin, end_ = (format_time(at * 1000, "seconds") for at in (time_of(journal.mark), until))
        when = f"between {begin} and {end_}" if journal.mark else f"before {end_}"
        text = f"entries {start} to {start + lost - 1} of journal {journal.name}, written {when}"
        reason = f"{text}, are lost: they were deleted before they were read, or cannot be read"
        self.journals.notices.append(Notice(NoticeKind.VACUUMED, journal.path, reason, lost))
        return blocks

    def _pass_over_gone(self) -> list[Block]:
        """Leave gaps for entries that no journal file has any more, or will ever show."""
        blocks: list[Block] = []
        for journal in self.journals.found.values():
            is_read = self._reading is not None and self._reading.journal is journal
            if journal.position < (end := journal.lost_end) and not is_read:
                blocks += self._pass_over(journal, end, journal.last_time)
                journal.position = end
                blocks.append(journal.cover(b"", self._clock()))
        return blocks

    def _select(self, journal: Journal, entry: JournalEntry) -> bytes:
        """Return the lines of an entry that are shipped, and report what is not."""
        lines, most = entry.lines, self._max_entry
        if journal.was_shipped(entry.mark) or lines is None:
            return b""
        lost, name = len(lines) - most, f"entry {entry.number} of journal {journal.name}"
        journal.empty += not lines
        if not lines and journal.empty & (journal.empty - 1) == 0:  # 1, 2, 4, and so on
            text = f"{name} has no message, or it cannot be read; {journal.empty} such are left out"
            self.journals.notices.append(Notice(NoticeKind.DAMAGED, journal.path, text))
        if lost <= 0:
            return lines
        text = f"{name} is longer than {most} bytes (--max-line, or what the broker takes in time)"
        text = f"{text}; {lost} bytes are cut off"
        self.journals.notices.append(Notice(NoticeKind.CUT, journal.path, text, lost))
        return lines[: most - 1] + b"\n"

    def _make_block(self, journal: Journal, lines: list[bytes]) -> list[Block]:
        return [journal.cover(b"".join(lines), self._clock())] if lines else []

    def _cut_short(self, reading: _Reading) -> list[Block]:
        """Ship the beginning of an entry that is too large to be held."""
        journal = reading.journal
        if not reading.parser.holds_entry:
            self._give_up(journal, f"has printed {_MOST_HELD >> 20} MiB that are no entry")
            return []
        if self._form.names and not journal.is_narrow:  # other fields may be large
            self.close()
            journal.is_narrow = True
            return []
        entry = reading.parser.cut(journal.position)
        self.close()
        blocks = self._take(reading, [entry])
        journal.mark = b""  # the next run does not read it again
        return blocks

    def _cover_left_out(self) -> list[Block]:
        """Return empty blocks over entries that are left out, every few seconds."""
        now, once = time.monotonic(), self._options.once and self._reading is None
        if not once and now - self._covered_at < _COVER_EVERY:
            return []
        self._covered_at = now
        journals = self.journals.found.values()
        left = [one for one in journals if one.covered < one.position and not one.shipped]
        return [one.cover(b"", self._clock()) for one in left]


def _names(files: Iterable[JournalFile]) -> frozenset[tuple[str, int]]:
    return frozenset(one.key for one in files)


def _end_of_pause(began: float) -> float:
    """Return until when to pause after work that began then, by the monotonic clock."""
    now = time.monotonic()
    return now + min(_LONGEST_WAIT, _WORK_SHARE * (now - began))
