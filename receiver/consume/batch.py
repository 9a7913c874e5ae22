"""A partition that a task has the lock of, and one batch being written: messages sorted by host, sections judged, all on disk.

What is written here is on disk only after `finish`, and counts only once the partition's entry in KV has moved.
"""

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from secrets import token_hex

from broker.app.faults import fault
from broker.wire.delivery import Delivery, RawMessage
from broker.wire.endings import Endings, OpenLine
from broker.wire.message import (
    MAX_LINES_BYTES,
    Followed,
    MalformedMessage,
    predecessor_of,
)
from broker.wire.offset import Offset
from broker.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.assignment import Assignment, Destination, Done
from receiver.consume.claim import nanoseconds
from receiver.consume.fetch import Messages
from receiver.consume.host_moves import follows, leaves_for
from receiver.consume.judging import Judge, host_of
from receiver.storage import tables
from receiver.storage.findings import Finding, FindingKind
from receiver.storage.folders import Folders
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.output import Output
from receiver.storage.quarantine import Quarantine
from receiver.storage.rotation import Calendar, named_zone
from receiver.storage.site import Site, first_undone, recover, settled
from receiver.storage.store import UNKNOWN, Store, StoredBatch, path_of
from receiver.storage.tables import Spans

_MOST_HELD = MAX_LINES_BYTES  # and a message more; a few KiB of zstd may decompress to a thousand times as much
_FEW = 256  # files, which stay open
_MOST_FINDINGS = 10_000  # each is a value that travels to the driver
_MISSING = (FindingKind.GAP, FindingKind.LOSS)


class OpenPartition:
    """The store and the folders of a partition, held against each other; to be closed."""

    def __init__(self, assignment: Assignment, destination: Destination, offset: Offset) -> None:
        """Open the store, and make it where nothing was received yet; raises OSError, `Damaged`."""
        self._assignment = assignment
        self._destination = destination
        self._offset = offset
        output, template = destination.output, destination.path_template
        self.site = Site(
            output, destination.state, assignment.partition, template, destination.partitions
        )
        zone = named_zone(destination.time_zone)
        self.layout = Layout(template)
        self.days = Days(zone, nanoseconds(offset.last_time))
        self.calendar = Calendar(destination.rotate_every, zone)
        self.store = self.site.open(offset.lines) or self._made()
        self._folders = Folders(output, destination.permissions)
        self.names = Names(
            self.store,
            self.layout,
            self.days,
            assignment.partition,
            lambda path: self._folders.find(path) is not None,
            self.site.is_home_of,
        )
        self.spans = Spans(self.store)

    def _made(self) -> Store:
        with closing(Store(self.site.path, make=True)) as store, store.transaction():
            inode = self._destination.output.stat().st_ino
            store.put_batch(settled(0, self._offset, store.inode(), inode))
        return Store(self.site.path)

    @property
    def last(self) -> StoredBatch:
        """The batch that was stored last."""
        batch = self.store.batch()
        assert batch is not None, "it was begun when it was opened"
        return batch

    def next_batch(self, first: int, until: int) -> StoredBatch:
        """Return the batch behind the last one, as it is stored when all of it is written."""
        last, epoch = self.last, self._assignment.epoch
        commit_id = token_hex(8) if first < until else last.commit_id
        return last._replace(
            number=last.number + 1,
            epoch=epoch,
            first=first,
            until=until,
            commit_id=commit_id,
            previous_id=last.commit_id,
        )

    def _first_undone(self) -> int:
        return first_undone(self.last, self._offset, self._assignment.partition)

    @property
    def has_stored(self) -> bool:
        """Whether the batch that was stored last is to be taken back, for all that is known here; raises `Damaged`."""
        return self._first_undone() <= self.last.number

    def recover(self) -> None:
        """Make the files what the offset says they are; raises OSError, `Damaged`."""
        recover(self.store, self._folders, self._first_undone(), self._offset)

    def endings(self) -> Endings:
        """Return which lines are unfinished at the end of live files."""
        rows = self.store.files("unfinished NOT NULL AND unfinished != ?", UNKNOWN)
        return Endings({row.path: OpenLine.parse(row.host, str(row.unfinished)) for row in rows})

    def take_over(self, host: str, received: Mapping[Followed, int]) -> None:
        """Take over what other partitions have put aside of a host, and what nobody took of it here; raises OSError, `Damaged`.

        `received` is how far each of them has come. Where lines went to stores that are not here since the last of them came
        here, nobody knows how far its source files were received.
        """
        since = (self.store.span(host, "") or (0, 0))[0]
        are_here = [
            self._take_over(host, *end) or end[0].sequence <= since for end in received.items()
        ]
        with self.store.transaction():
            self.store.change("UPDATE files SET left_in = 0 WHERE host = ?", host)
            if not all(are_here):
                self.store.change("DELETE FROM spans WHERE host = ? AND file != ''", host)
        self.names.forget()
        self.spans = Spans(self.store)

    def _take_over(self, host: str, end: Followed, reached: int) -> bool:
        """Return whether the store of a partition is here, and all that was received of it in that."""
        try:
            with Store(path_of(self.site.state, end.partition)) as before:
                tables.take_over(self.store, before, host)
                batch = before.batch()
                return batch is not None and batch.until >= reached
        except FileNotFoundError:
            return not reached

    def writing(self) -> Output:
        """Open the output folder for a batch, when the one before it is committed; raises OSError."""
        last = self.last
        self._offset = replace(self._offset, next=last.until, commit=last.commit_id)
        size = self._destination.rotate_size
        return Output(self._folders, self.store, self.names, size, self.calendar)

    def close(self) -> None:
        """Let go of it."""
        self._folders.close()
        self.store.close()


class Batch:
    """The writing half of a task; used by one thread, under the partition's lock."""

    def __init__(self, assignment: Assignment, partition: OpenPartition, output: Output) -> None:
        """Begin with nothing touched."""
        self._assignment = assignment
        self._partition = partition
        self._output = output
        partition.spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = partition.endings()
        self._judge = Judge(partition.spans)
        self._quarantine = Quarantine(
            partition.site.output, assignment.partition, partition.last.created
        )
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

        Raises OSError. Lines of many hosts are held until there are more of each: opening a file costs more than its lines.
        """
        count = 0
        for delivery, message in messages:
            if self._last is None:
                if self._partition.layout.has_date:
                    self._output.close_days(self._partition.days.date(delivery.stored_at))
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

    def _take(self, delivery: Delivery, message: RawMessage) -> None:
        headers = message.headers
        try:
            self._sort(delivery, message, headers)
            if leaves_for(message) not in {None, self._assignment.partition}:
                self._left.add(host_of(message.subject))
                self.is_full = True  # other clients' lines behind it go elsewhere
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
        moment, names = delivery.stored_at, self._partition.names
        found = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        for piece in found:
            is_own = piece.file_id != ""
            live = names.live_name(piece.host, piece.file or None, moment, is_own=is_own)
            payload = piece.joined(self._endings, live)
            self._lines += piece.lines
            self._size += len(payload)
            self._held += len(payload)
            self._files = self._output.hold(live, payload, moment)

    def _flush(self) -> None:
        self._output.flush()
        self._held = self._files = 0

    def finish(self) -> Done:
        """Bring everything to disk and return what was done; raises OSError."""
        number, first, last = self._assignment.partition, self._assignment.first, self._last
        if last is None:
            return Done(number, first, first)
        missing = [one for one in self._judge.findings if one.kind in _MISSING]
        if missing:
            self._output.hold(tables.gap_report(number), tables.lines_of(missing, number), 0)
        self._flush()
        batch = self._store(last.sequence + 1, missing)
        return Done(
            number,
            first,
            last.sequence + 1,
            messages=self._messages,
            lines=self._lines,
            size=self._size,
            quarantined=self._quarantined,
            pending=last.pending,
            ack=self._ack,
            commit=batch.commit_id,
            stored_at=last.stored_at,
            closed=tuple(self._output.closed),
            findings=tuple(self._judge.findings),
            notices=tuple(self._output.notices),
        )

    def _store(self, until: int, missing: list[Finding]) -> StoredBatch:
        """Bring the files to disk first, and then the store, which says so; return the batch."""
        partition, store = self._partition, self._partition.store
        self._quarantine.sync()
        self._output.sync()
        fault("synced")
        batch = partition.next_batch(self._assignment.first, until)
        with store.transaction():
            self._output.put(batch, dict(self._endings.as_texts()))
            for path in (path for host in self._left for path in partition.names.own(host)):
                store.change("UPDATE files SET left_in = ? WHERE path = ?", batch.number, path)
            partition.spans.put(batch.number)
            tables.put_gaps(store, missing, batch.number)
        if self._left:
            partition.names.forget()
        fault("stored")
        return batch
