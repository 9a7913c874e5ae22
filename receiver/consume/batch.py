"""One batch being written: sorts messages by host, judges sections by their spans, and brings files and store to disk.

What is written here is on disk only after `finish`, and counts only once the partition's entry in KV has moved.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from broker.app.faults import fault
from broker.client.connection import RawMessage
from broker.wire.delivery import Delivery
from broker.wire.message import MAX_LINES_BYTES, MalformedMessage, has_ours, predecessor_of
from broker.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.assignment import Assignment, Done
from receiver.consume.fetch import Messages
from receiver.consume.host_moves import follows, leaves_for
from receiver.consume.judging import Endings, Finding, FindingKind, Judge, host_of
from receiver.consume.open_partition import OpenPartition
from receiver.storage import tables
from receiver.storage.output import Output
from receiver.storage.position import StoredBatch
from receiver.storage.quarantine import Quarantine

__all__ = ["Batch", "stored_batch"]

_MOST_HELD = MAX_LINES_BYTES  # and a message more; a few KiB of zstd may decompress to a thousand times as much
_FEW = 256  # files, which stay open
_MOST_FINDINGS = 10_000  # each is a value that travels to the driver
_MISSING = (FindingKind.GAP, FindingKind.LOSS)


class Batch:
    """The writing half of a task; used by one thread, under the partition's lock."""

    def __init__(self, assignment: Assignment, partition: OpenPartition, output: Output) -> None:
        """Begin with nothing touched."""
        self._assignment = assignment
        self._partition = partition
        self._output = output
        partition.spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = Endings(partition.unfinished())
        self._judge = Judge(partition.spans)
        self._quarantine = Quarantine(
            partition.site.output, assignment.partition, partition.last.created
        )
        self._done = Done(assignment.partition, assignment.first, assignment.first)
        self._messages = self._lines = self._size = self._quarantined = 0
        self._held = self._files = 0  # bytes that are not appended yet, for so many files
        self._most_of_many = assignment.limit + assignment.pull  # of a batch that is not compressed
        self._last: Delivery | None = None
        self._ack = ""
        self._left: set[str] = set()  # hosts that go to another partition behind this batch
        self.is_full = False
        """Whether the batch takes no more messages."""

    def write(self, messages: Messages) -> int:
        """Append the lines of messages to their hosts' files; return of how many, as the batch may be full.

        Raises OSError. Lines of many hosts are held until there are more for each: opening and syncing a file costs more
        than its lines.
        """
        count = 0
        for delivery, message in messages:
            if self._last is None:
                self._begin(delivery)
            elif follows(message) or not self._output.takes(delivery.stored_at):
                self.is_full = True  # such a message begins a batch
            if self.is_full:
                break
            self._take(delivery, message)
            count += 1
        if self._files <= _FEW:
            self._flush()
        self._messages += count
        return count

    def _begin(self, first: Delivery) -> None:
        if self._partition.layout.has_date:
            self._output.close_days(self._partition.days.date(first.stored_at))

    def _take(self, delivery: Delivery, message: RawMessage) -> None:
        headers = message.headers if has_ours(message.head) else None
        try:
            self._sort(delivery, message, headers)
            self._note_move(message)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            self._quarantined += 1
            self._quarantine.set_aside(delivery, message, str(error))
        with suppress(InvalidHost, InvalidSubject):  # that's fine: such a message is in quarantine
            host, before = host_of(message.subject), predecessor_of(headers)
            self._judge.follow(host, before, delivery.sequence, delivery.stored_at)
        if self._held > (self._most_of_many if self._files > _FEW else _MOST_HELD):
            self._flush()
        self._last, self._ack = delivery, message.reply
        self.is_full |= self._output.is_full or len(self._judge.findings) >= _MOST_FINDINGS

    def _sort(
        self, delivery: Delivery, message: RawMessage, headers: dict[str, str] | None
    ) -> None:
        moment = delivery.stored_at
        found = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        for piece in found:
            is_own = piece.file_id != ""
            live = self._partition.names.live_name(
                piece.host, piece.file or None, moment, is_own=is_own
            )
            payload = self._endings.joined(live, piece)
            self._lines += piece.lines
            self._size += len(payload)
            self._held += len(payload)
            self._files = self._output.hold(live, payload, moment)

    def _note_move(self, message: RawMessage) -> None:
        if leaves_for(message) not in {None, self._assignment.partition}:
            self._left.add(host_of(message.subject))
            self.is_full = True  # other clients' lines behind it go elsewhere

    def _flush(self) -> None:
        self._output.flush()
        self._held = self._files = 0

    def finish(self) -> Done:
        """Bring everything to disk and return what was done; raises OSError."""
        number, last = self._assignment.partition, self._last
        if last is None:
            return self._done
        self._flush()
        missing = [one for one in self._judge.findings if one.kind in _MISSING]
        if missing:
            self._output.append(tables.gap_report(number), tables.lines_of(missing, number))
        self._output.sync()
        self._quarantine.sync()
        fault("synced")
        self._put(last.sequence + 1, missing)
        fault("stored")
        return replace(
            self._done,
            until=last.sequence + 1,
            messages=self._messages,
            lines=self._lines,
            size=self._size,
            quarantined=self._quarantined,
            pending=last.pending,
            ack=self._ack,
            stored_at=last.stored_at,
            closed=tuple(self._output.closed),
            findings=tuple(self._judge.findings),
            notices=tuple(self._output.notices),
        )

    def _put(self, until: int, missing: Iterable[Finding]) -> None:
        partition, store = self._partition, self._partition.store
        stored = stored_batch(partition, self._assignment, until)
        with store.transaction():
            self._output.put(stored, {live: file for live, (_, file) in self._endings.torn.items()})
            for host in self._left:
                tables.leave(store, partition.names.own(host), stored.number)
            partition.spans.put(stored.number)
            tables.put_gaps(store, missing, stored.number)
        partition.spans.stored()
        if self._left:
            partition.names.forget()


def stored_batch(partition: OpenPartition, assignment: Assignment, until: int) -> StoredBatch:
    """Return the batch as it is stored when all before `until` is written."""
    last, first, epoch = partition.last, assignment.first, assignment.epoch
    return replace(last, number=last.number + 1, epoch=epoch, first=first, until=until)
