"""One batch being written: sorts messages by host, judges sections by their spans, and keeps the order journal, files, end.

What is written here is on disk only after `finish`, and counts only once the partition's entry in KV has moved.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache

import zstandard

from broker.app.faults import fault
from broker.client.connection import Arrived
from broker.wire.delivery import Delivery
from broker.wire.message import (
    MAX_LINES_BYTES,
    MalformedMessage,
    decode_origin,
    decode_payload,
    has_ours,
    predecessor_of,
)
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject
from receiver.assignment import Assignment, Destination
from receiver.outcome import Done
from receiver.reading.fetch import Chunk
from receiver.writing.files import Output
from receiver.writing.gaps import GapBook
from receiver.writing.journal import PreImage
from receiver.writing.judging import Judge, Lines
from receiver.writing.layout import Days, Layout
from receiver.writing.logbook import Logbook
from receiver.writing.owners import Owners
from receiver.writing.quarantine import Quarantine
from receiver.writing.spanbook import SpanBook
from receiver.writing.spans import Kind
from receiver.zones import named_zone

__all__ = ["Batch"]

_MOST_HELD = MAX_LINES_BYTES  # and a message more; a few KiB of zstd may decompress to a thousand times as much
_FEW = 256  # hosts; their files stay open
_MOST_FILES = 1_000  # of a host, and those of a message more; each costs half a millisecond that all hosts wait
_NEWLINE = 10
_MISSING = (Kind.GAP, Kind.LOSS)


@dataclass(slots=True)
class _Tally:
    messages: int = 0
    lines: int = 0
    size: int = 0
    quarantined: int = 0


@dataclass(slots=True)
class _Run:
    """Lines of a file in one period of rotation, which ends at `end`; `moment` is when the last of them were stored."""

    end: int
    moment: int
    pieces: list[bytes] = field(default_factory=list)


_Sorted = dict[str, list[_Run]]


class Batch:
    """The writing half of a task; used by one thread, under the partition's lock."""

    def __init__(
        self,
        assignment: Assignment,
        destination: Destination,
        logbook: Logbook,
        output: Output,
        spans: SpanBook,
    ) -> None:
        """Begin with nothing touched."""
        self._assignment = assignment
        self._destination = destination
        self._logbook = logbook
        self._output = output
        self._spans = spans
        self._endings = spans.endings
        if spans.is_new:
            spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._judge = Judge(spans)
        self._days = Days(named_zone(destination.time_zone), assignment.passed)
        self._layout = Layout(destination.path_template)
        self._owners = Owners(destination.output, assignment.partition, self._layout, self._days)
        self._quarantine = Quarantine(destination.output, assignment.partition)
        self._gaps = GapBook(
            destination.state / f"p{assignment.partition}.gaps", assignment.partition
        )
        self._tally = _Tally()
        self._pieces: _Sorted = {}
        self._appended = 0  # bytes of the tally
        self._decompressor = zstandard.ZstdDecompressor()
        self._most_of_many = assignment.limit + assignment.pull  # of a batch that is not compressed
        self._last: Delivery | None = None
        self._is_started = False
        self._files: dict[str, set[str]] = {}  # by host, where each has one of its own
        self._is_full = False
        self._ack = ""
        self.images: dict[str, PreImage] = {}

    def write(self, chunk: Chunk) -> Chunk | None:
        """Append the lines of a chunk to their hosts' files; return what the batch has no room for; raises OSError.

        Names of files cost a host nothing: a batch with very many of one host ends, so that others' lines between are committed.
        Lines of many hosts are held until there are more for each: opening and syncing a file costs more than its lines.
        """
        pieces, count = self._pieces, 0
        for delivery, message in chunk.messages:
            headers = message.headers if has_ours(message.head) else None
            try:
                self._sort(delivery, message, headers, pieces)
            except (MalformedMessage, InvalidHost, InvalidSubject) as error:
                self._tally.quarantined += 1
                self._quarantine.set_aside(delivery, message, str(error))
            self._follow(delivery, message.subject, headers)
            held = self._tally.size - self._appended
            if held > (self._most_of_many if len(pieces) > _FEW else _MOST_HELD):
                self._append(pieces)
            count += 1
            if self._is_full:
                break
        if len(pieces) <= _FEW:
            self._append(pieces)
        rest = chunk.behind(count)
        self._pass(chunk.beginning(count) if rest else chunk)
        return rest

    def set_aside(self, chunk: Chunk, reason: str) -> None:
        """Set the messages of a chunk aside unread; raises OSError."""
        self._append({})
        for delivery, message in chunk.messages:
            self._tally.quarantined += 1
            self._quarantine.set_aside(delivery, message, reason)
            self._follow(delivery, message.subject, None)
        self._pass(chunk)

    def _pass(self, chunk: Chunk) -> None:
        self._tally.messages += len(chunk.messages)
        self._last, self._ack = chunk.last, chunk.messages[-1][1].reply

    def _follow(self, delivery: Delivery, subject: str, headers: dict[str, str] | None) -> None:
        sequence, predecessor = delivery.sequence, predecessor_of(headers)
        with suppress(InvalidHost, InvalidSubject):  # that's fine: such a message is in quarantine
            self._judge.follow(_host_of(subject), predecessor, sequence, delivery.stored_at)

    def _append(self, pieces: _Sorted) -> None:
        self._owners.sync()
        fault("registered")
        self._announce(pieces)
        fault("announced")
        for live, runs in pieces.items():
            for run in runs:
                self._output.append(live, run.pieces, run.moment)
                fault("written")
        pieces.clear()
        self._appended = self._tally.size

    def _sort(
        self,
        delivery: Delivery,
        message: Arrived,
        headers: dict[str, str] | None,
        pieces: _Sorted,
    ) -> None:
        host = _host_of(message.subject)
        origin = decode_origin(headers)
        whole = decode_payload(headers, message.data, self._decompressor)
        moment = delivery.stored_at
        found = self._judge.lines(host, origin, whole, delivery.sequence, moment)
        self._note_files(host, found)
        for lines in found:
            self._tally.lines += lines.count
            file = lines.section.path if lines.section else None
            live = self._owners.live_name(host, file, moment)
            payload = self._joined(live, host, lines)
            self._tally.size += len(payload)
            self._add(pieces.setdefault(live, []), payload, moment)

    def _note_files(self, host: str, found: Iterable[Lines]) -> None:
        if self._layout.has_file:
            files = self._files.setdefault(host, set())
            files.update(lines.file for lines in found)
            self._is_full |= len(files) >= _MOST_FILES

    def _joined(self, live: str, host: str, lines: Lines) -> bytes:
        payload = lines.payload
        if not self._endings.torn and payload[-1] == _NEWLINE:
            return payload
        return self._endings.joined(live, (host, lines.file_id), payload, follows=lines.follows)

    def _add(self, runs: list[_Run], payload: bytes, moment: int) -> None:
        if not runs or moment >= runs[-1].end:
            runs.append(_Run(self._output.calendar.period(moment).end, moment))
        runs[-1].pieces.append(payload)
        runs[-1].moment = moment

    def _announce(self, pieces: Iterable[str]) -> None:
        fresh = {live: self._output.image(live) for live in pieces if live not in self.images}
        if not self._is_started:
            self._is_started = True
            spans = self._spans.image()
            self._logbook.start(
                self._assignment.epoch, self._assignment.first, (spans, *fresh.values())
            )
        else:
            self._logbook.announce(fresh.values())
        self.images |= fresh

    def finish(self) -> Done:
        """Bring everything to disk and return what was done; raises OSError."""
        assignment, tally, last = self._assignment, self._tally, self._last
        if last is None:
            return Done(assignment.partition, assignment.first, assignment.first)
        if self._pieces:
            self._append(self._pieces)
        until = last.sequence + 1
        self._output.sync()
        self._quarantine.sync()
        fault("synced")
        self._save_gaps()
        self._spans.save()
        fault("spanned")
        self._logbook.end(until, self._spans.seal)
        fault("ended")
        return Done(
            partition=assignment.partition,
            first=assignment.first,
            until=until,
            messages=tally.messages,
            lines=tally.lines,
            size=tally.size,
            quarantined=tally.quarantined,
            pending=last.pending,
            ack=self._ack,
            stored_at=last.stored_at,
            latest=self._days.latest,
            closed=tuple(self._output.closed),
            findings=tuple(self._judge.findings),
            notices=(*self._output.notices, *self._spans.notices, *self._owners.notices()),
            forgotten=self._spans.forgotten,
        )

    def _save_gaps(self) -> None:
        if gaps := [finding for finding in self._judge.findings if finding.kind in _MISSING]:
            self._logbook.announce((self._gaps.image(),))
            fault("gaps_announced")
            self._gaps.save(gaps)
            fault("gaps_saved")

    def undo(self) -> None:
        """Leave nothing torn in sight after an OSError: cutting back takes no room. Raises OSError, `Damaged`.

        Should that fail as well, the journal still says what is to be undone.
        """
        self._quarantine.drop()
        self._output.undo(self.images.values())


@lru_cache(16_384)
def _host_of(subject: str) -> str:
    return Subject.parse(subject).host
