"""One batch being written: sorts messages by host, judges sections by their spans, and brings files and store to disk.

What is written here is on disk only after `finish`, and counts only once the partition's entry in KV has moved.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.app.faults import fault
from broker.client.connection import RawMessage
from broker.wire.delivery import Delivery
from broker.wire.message import MAX_LINES_BYTES, MalformedMessage, has_ours, predecessor_of
from broker.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.assignment import Assignment, Done
from receiver.consume.fetch import Chunk
from receiver.consume.host_moves import follows, leaves_for
from receiver.consume.judging import Endings, Finding, FindingKind, Judge, Piece, host_of
from receiver.consume.open_partition import OpenPartition, Writing
from receiver.storage import tables
from receiver.storage.plan import Run, add_piece
from receiver.storage.quarantine import Quarantine
from receiver.storage.tables import Gap

__all__ = ["Batch"]

_MOST_HELD = MAX_LINES_BYTES  # and a message more; a few KiB of zstd may decompress to a thousand times as much
_FEW = 256  # hosts; their files stay open
_MOST_FILES = 1_000  # of a host, and those of a message more; each costs half a millisecond that all hosts wait
_MOST_FINDINGS = 10_000  # each is a value that travels to the driver
_MISSING = (FindingKind.GAP, FindingKind.LOSS)


@dataclass(slots=True)
class _Tally:
    messages: int = 0
    lines: int = 0
    size: int = 0
    quarantined: int = 0


_Sorted = dict[str, list[Run]]


class Batch:
    """The writing half of a task; used by one thread, under the partition's lock."""

    def __init__(self, assignment: Assignment, partition: OpenPartition, writing: Writing) -> None:
        """Begin with nothing touched."""
        self._assignment = assignment
        self._store = partition.store
        self._writing = writing
        self._output = writing.output
        self._names = partition.names
        self._days = partition.days
        self._spans = writing.spans
        self._spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = Endings(partition.unfinished())
        self._judge = Judge(self._spans)
        self._layout = partition.layout
        self._quarantine = Quarantine(
            partition.site.output, assignment.partition, writing.last.created
        )
        self._tally = _Tally()
        self._pieces: _Sorted = {}
        self._appended = 0  # bytes of the tally
        self._most_of_many = assignment.limit + assignment.pull  # of a batch that is not compressed
        self._last: Delivery | None = None
        self._files: dict[str, set[str]] = {}  # by host, where each has one of its own
        self.is_full = False
        """Whether the batch takes no more messages."""
        self._left: set[str] = set()  # hosts that go to another partition behind this batch
        self._ack = ""

    def write(self, chunk: Chunk) -> int:
        """Append the lines of a chunk to their hosts' files; return of how many messages, as the batch may be full.

        Raises OSError. Names of files cost a host nothing: a batch with very many of one host ends, so that others' lines
        between are committed. So does one that has found very much. Lines of many hosts are held until there are
        more for each: opening and syncing a file costs more than its lines.
        """
        pieces, count = self._pieces, 0
        for delivery, message in chunk.messages:
            headers = message.headers if has_ours(message.head) else None
            if (self._last or count) and follows(message):
                self.is_full = True  # such a message begins a batch
                break
            try:
                self._sort(delivery, message, headers, pieces)
                self._note_move(message)
            except (MalformedMessage, InvalidHost, InvalidSubject) as error:
                self._tally.quarantined += 1
                self._quarantine.set_aside(delivery, message, str(error))
            self._follow(delivery, message.subject, headers)
            held = self._tally.size - self._appended
            if held > (self._most_of_many if len(pieces) > _FEW else _MOST_HELD):
                self._append(pieces)
            count += 1
            self.is_full |= len(self._judge.findings) >= _MOST_FINDINGS
            if self.is_full:
                break
        if len(pieces) <= _FEW:
            self._append(pieces)
        if count:
            self._pass(chunk.beginning(count))
        return count

    def _note_move(self, message: RawMessage) -> None:
        partition = leaves_for(message)
        if partition not in {None, self._assignment.partition}:
            self._left.add(host_of(message.subject))
            self.is_full = True  # other clients' lines behind it go elsewhere

    def _pass(self, chunk: Chunk) -> None:
        self._tally.messages += len(chunk.messages)
        self._last, self._ack = chunk.last, chunk.messages[-1][1].reply

    def _follow(self, delivery: Delivery, subject: str, headers: dict[str, str] | None) -> None:
        sequence, predecessor = delivery.sequence, predecessor_of(headers)
        with suppress(InvalidHost, InvalidSubject):  # that's fine: such a message is in quarantine
            self._judge.follow(host_of(subject), predecessor, sequence, delivery.stored_at)

    def _append(self, pieces: _Sorted) -> None:
        self._output.write(pieces)
        pieces.clear()
        self._appended = self._tally.size

    def _sort(
        self,
        delivery: Delivery,
        message: RawMessage,
        headers: dict[str, str] | None,
        pieces: _Sorted,
    ) -> None:
        moment = delivery.stored_at
        found = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        self._note_files(found)
        for piece in found:
            self._tally.lines += piece.lines
            is_own = piece.file_id != ""
            live = self._names.live_name(piece.host, piece.file or None, moment, is_own=is_own)
            payload = self._endings.joined(live, piece)
            self._tally.size += len(payload)
            add_piece(pieces.setdefault(live, []), payload, moment, self._output.calendar)

    def _note_files(self, found: Iterable[Piece]) -> None:
        if self._layout.has_file:
            for piece in found:
                files = self._files.setdefault(piece.host, set())
                files.add(piece.file)
                self.is_full |= len(files) >= _MOST_FILES

    def finish(self) -> Done:
        """Bring everything to disk and return what was done; raises OSError."""
        assignment, tally, last = self._assignment, self._tally, self._last
        if last is None:
            return Done(assignment.partition, assignment.first, assignment.first)
        if self._pieces:
            self._append(self._pieces)
        until = last.sequence + 1
        missing = [_gap(one) for one in self._judge.findings if one.kind in _MISSING]
        if missing:
            number = assignment.partition
            self._output.append(tables.gap_report(number), tables.lines_of(missing, number))
        self._output.sync()
        self._quarantine.sync()
        fault("synced")
        self._put(until, missing)
        fault("stored")
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
            closed=tuple(self._output.closed),
            findings=tuple(self._judge.findings),
            notices=tuple(self._output.notices),
        )

    def _put(self, until: int, missing: Iterable[Gap]) -> None:
        store, stored = self._store, self._writing.stored(self._assignment, until)
        unfinished = {live: file for live, (_, file) in self._endings.torn.items()}
        today = self._days.today if self._layout.has_date else ""
        with store.transaction():
            self._output.put(stored, today, unfinished)
            for host in self._left:
                tables.leave(store, self._names.own(host), stored.number)
            self._spans.put(stored.number)
            tables.put_gaps(store, missing, stored.number)
        self._spans.stored()
        if self._left:
            self._names.forget()


def _gap(finding: Finding) -> Gap:
    return Gap(
        kind=finding.kind.value,
        host=finding.host,
        file=finding.file,
        file_id=finding.file_id,
        start=finding.start,
        until=finding.end,
        sequence=finding.sequence,
        after=finding.after,
        since=_iso(finding.since),
        read_at=_iso(finding.read_at),
    )


def _iso(moment: int) -> str | None:
    if not 0 < moment < 2**62:
        return None
    return datetime.fromtimestamp(moment / 1e9, UTC).isoformat(timespec="milliseconds")
