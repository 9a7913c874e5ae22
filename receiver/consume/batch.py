"""A partition that a task has the lock of, and one batch being written: messages sorted by host, sections judged, all on disk.

What is written here is on disk only after `finish`, and counts only once the partition's entry in KV has moved.
"""

from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from functools import cached_property
from secrets import token_hex

from nats_logship.app.faults import fault
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.endings import Endings, OpenLine
from nats_logship.wire.message import MAX_LINES_BYTES, Followed, MalformedMessage
from nats_logship.wire.offset import Offset
from nats_logship.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.assignment import Assignment, Destination, Done
from receiver.consume.fetch import Messages
from receiver.consume.host_moves import Moves, Received, read_destination, read_follows
from receiver.consume.judging import Judge, expected_sequence, host_of
from receiver.consume.poison import Suspicion, blaming
from receiver.storage.anomalies import Anomaly, AnomalyKind, format_gaps, gap_report
from receiver.storage.commit import (
    WrittenBatch,
    find_first_undone,
    make_settled_batch,
    recover,
    store_batch,
)
from receiver.storage.folders import Folders
from receiver.storage.layout import Days, Layout
from receiver.storage.names import LivePaths
from receiver.storage.output import Output
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.quarantine import Quarantine
from receiver.storage.rotation import Calendar, load_zone
from receiver.storage.rows import UNKNOWN, StoredBatch
from receiver.storage.spans import StoredSpanEnds, take_over_files
from receiver.storage.store import Store, path_of

_MOST_HELD = MAX_LINES_BYTES  # and a message more; a few KiB of zstd may decompress to a thousand times as much
_FEW = 256  # files, which stay open
_MOST_ANOMALIES = 10_000  # each is a value that travels to the driver
_MOST_SOURCES = 20_000  # source files of which a batch has lines: each is a row of the store
_NONE = Suspicion()
_MISSING = (AnomalyKind.GAP, AnomalyKind.LOSS)


class OpenPartition:
    """The store and the folders of a partition, held against each other; to be closed."""

    def __init__(self, assignment: Assignment, destination: Destination, offset: Offset) -> None:
        """Open the store, and make it where nothing was received yet; raises OSError, `Damaged`."""
        self._assignment = assignment
        self._destination = destination
        self._offset = offset
        output, template = destination.output, destination.path_template
        self.partition_folders = PartitionFolders(
            output, destination.state, assignment.partition, template, destination.partitions
        )
        zone = load_zone(destination.time_zone)
        self.layout = Layout(template)
        self.days = Days(zone, offset.stored_at)
        self.calendar = Calendar(destination.rotate_every, zone)
        self.store = self.partition_folders.open_store(offset.lines) or self._made()
        self._folders = Folders(output, destination.permissions)
        self.names = LivePaths(
            self.store,
            self.layout,
            self.days,
            assignment.partition,
            self._folders.is_occupied if self.layout.has_file else self._folders.has_file,
            self.partition_folders.is_home_of,
        )
        self.spans = StoredSpanEnds(self.store)
        self._today = ""  # the day before which all files are closed
        self._period_begin = -1  # of the last period at whose change files were closed

    def _made(self) -> Store:
        with closing(Store.create(self.partition_folders.store_path)) as store, store.transaction():
            inode = self._destination.output.stat().st_ino
            template = self.partition_folders.template
            store.put_batch(make_settled_batch(0, self._offset, store.inode, inode, template))
        return Store(self.partition_folders.store_path)

    @property
    def last(self) -> StoredBatch:
        """The batch that was stored last."""
        batch = self.store.read_batch()
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
        return find_first_undone(self.last, self._offset, self._assignment.partition)

    @property
    def has_stored(self) -> bool:
        """Whether the batch that was stored last is to be taken back, for all that is known here; raises `Damaged`."""
        return self._first_undone() <= self.last.number

    def recover(self) -> list[str]:
        """Make the files what the offset says they are, and return notices.

        Raises OSError, `Damaged`.
        """
        since, template = self._first_undone(), self.partition_folders.template
        return recover(self.store, self._folders, since, self._offset, template)

    def open_line(self, live: str) -> OpenLine | None:
        """Return the unfinished line at the end of a live file."""
        row = self.store.find_file(live)
        if row is None or row.unfinished in {None, UNKNOWN}:
            return None
        return OpenLine.parse(row.host, str(row.unfinished))

    @cached_property
    def quarantine(self) -> Quarantine:
        """Where messages go that are no lines; to be asked for behind `recover`."""
        return Quarantine(
            self.partition_folders.output, self._assignment.partition, self.last.created
        )

    def close_days(self, output: Output, moment: int) -> None:
        """Close the files of days that are over, once for each day; raises OSError."""
        if self.layout.has_date and (today := self.days.date(moment)) != self._today:
            output.close_days(today)
            self._today = today

    def take_over(self, host: str, received: Iterable[Received]) -> None:
        """Take over what other partitions have put aside of a host, and what nobody took of it here; raises OSError, `Damaged`.

        `received` is how far each of them has come. If lines went to stores that are not here since
        the last of them came here, nobody knows how far the source files were received.
        """
        since = (self.store.find_span(host, "") or (0, 0))[0]
        are_here = [
            (reached is not None and self._take_over(host, end, reached)) or end.sequence <= since
            for end, reached in received
        ]
        with self.store.transaction():
            self.store.return_files(host)
            if not all(are_here):
                self.store.forget_spans(host)
        self.names.clear_cache()
        self.spans = StoredSpanEnds(self.store)

    def _take_over(self, host: str, end: Followed, reached: int) -> bool:
        """Return whether the store of a partition is here, and all that was received of it in that."""
        try:
            with Store(path_of(self.partition_folders.state, end.partition)) as before:
                take_over_files(self.store, before, host)
                batch = before.read_batch()
                return batch is not None and batch.until >= reached
        except FileNotFoundError:
            return not reached

    def begin_batch(self, output: Output, moment: int) -> None:
        """Close what was over when the first message of a batch was stored: days, and periods.

        All lines of the partition that were stored before are committed then. Raises OSError.
        """
        self.close_days(output, moment)
        begin = self.calendar.period(moment).begin
        if begin != self._period_begin:
            self.close_files(output, begin)
            self._period_begin = begin

    def close_files(self, output: Output, since: int) -> None:
        """Close live files with lines whose last line is older than a moment; raises OSError."""
        rows = self.store.list_files_silent_since(since)
        output.close_files(row.path for row in rows)

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

    def __init__(
        self,
        assignment: Assignment,
        partition: OpenPartition,
        output: Output,
        moves: Moves | None = None,
        suspicion: Suspicion = _NONE,
    ) -> None:
        """Begin with nothing touched; `moves` is what was found of claims in the first messages."""
        self._assignment = assignment
        self._suspicion = suspicion
        self._is_taking = False
        self._partition = partition
        self._output = output
        self._moves = moves or Moves()
        partition.spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = Endings(open_before=partition.open_line)
        self._judge = Judge(partition.spans)
        self._quarantine = partition.quarantine
        self._messages = self._lines = self._size = self._quarantined = 0
        self._held = self._files = 0  # bytes that are not appended yet, for so many files
        self._most_of_many = assignment.limit + assignment.pull  # of a batch that is not compressed
        self._last: Delivery | None = None
        self._ack = ""
        self._left: set[str] = set()  # hosts that have gone to another partition
        self.is_full = False
        """Whether the batch takes no more messages."""

    def write(self, messages: Messages) -> int:
        """Append the lines of messages to their hosts' files; return of how many, as the batch may be full.

        Raises OSError, `BatchFailed`. Lines of many hosts are held until there are more of each:
        opening a file costs more than its lines.
        """
        with blaming(self._innocent):
            return self._write(messages)

    def _innocent(self) -> int:
        """Return how many of the first messages can be tried without the one that is to blame."""
        return self._messages if self._is_taking else self._messages // 2

    def _write(self, messages: Messages) -> int:
        count, are_first = 0, self._last is None
        for delivery, message in messages:
            if self._last is None:
                self._partition.begin_batch(self._output, delivery.stored_at)
            elif (
                not self._output.accepts(delivery.stored_at)
                or delivery.sequence == self._moves.until
            ):
                self.is_full = True
            # claims are examined before a batch is begun, all those in its first messages at once
            self.is_full |= not are_first and bool(read_follows(message))
            if self.is_full:
                break
            self._take(delivery, message)
            count += 1
        if self._files <= _FEW:
            self._flush()
        return count

    def _take(self, delivery: Delivery, message: RawMessage) -> None:
        self._is_taking, headers = True, message.headers
        try:
            self._refuse(delivery, message)
            self._moves.require_sound(delivery)
            self._sort(delivery, message, headers)
            self._note_move(message)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            self._quarantined += 1
            self._quarantine.set_aside(delivery, message, str(error))
        with suppress(InvalidHost, InvalidSubject):  # that's fine: such a message is in quarantine
            host, before = host_of(message.subject), expected_sequence(headers)
            self._judge.follow(host, before, delivery.sequence, delivery.stored_at)
        if self._held > (self._most_of_many if self._files > _FEW else _MOST_HELD):
            self._flush()
        self._last, self._ack = delivery, message.reply
        self._messages += 1
        self.is_full |= self._messages == self._suspicion.most
        self.is_full |= self._output.is_full or len(self._judge.anomalies) >= _MOST_ANOMALIES
        self.is_full |= self._partition.spans.unsaved >= _MOST_SOURCES
        self._is_taking = False

    def _refuse(self, delivery: Delivery, message: RawMessage) -> None:
        """Raise `MalformedMessage` for a message that an earlier attempt has failed to write."""
        if reason := self._suspicion.reason:
            self._output.notices.append(
                f"message {delivery.sequence} of {message.subject} goes into quarantine: "
                f"logship fails to write it ({reason}); please report this defect"
            )
            raise MalformedMessage(reason)

    def _note_move(self, message: RawMessage) -> None:
        """Note whether the host of a message has gone to another partition, or has come back."""
        if read_destination(message) not in {None, self._assignment.partition}:
            self._left.add(host_of(message.subject))
        elif self._left and read_follows(message):
            self._left.discard(host_of(message.subject))

    def _sort(
        self, delivery: Delivery, message: RawMessage, headers: dict[str, str] | None
    ) -> None:
        moment, names = delivery.stored_at, self._partition.names
        found = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        for piece in found:
            is_own, has_left = piece.file_id != "", piece.host in self._left
            live = names.choose(
                piece.host, piece.file or None, moment, is_own=is_own, has_left=has_left
            )
            payload = piece.joined(self._endings, live)
            self._lines += piece.lines
            self._size += len(payload)
            self._held += len(payload)
            self._files = self._output.buffer(live, payload, moment)

    def _flush(self) -> None:
        self._output.flush()
        self._held = self._files = 0

    def finish(self) -> Done:
        """Bring everything to disk and return what was done; raises OSError, `BatchFailed`."""
        with blaming(self._innocent):
            return self._finish()

    def _finish(self) -> Done:
        number, first, last = self._assignment.partition, self._assignment.first, self._last
        if last is None:
            return Done(number, first, first)
        missing = [one for one in self._judge.anomalies if one.kind in _MISSING]
        if missing:
            self._output.buffer(gap_report(number), format_gaps(missing, number), 0)
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
            anomalies=tuple(self._judge.anomalies),
            notices=tuple(self._output.collect_notices()),
        )

    def _store(self, until: int, missing: list[Anomaly]) -> StoredBatch:
        """Bring the files to disk first, and then the store, which says so; return the batch."""
        partition = self._partition
        self._quarantine.sync()
        self._output.sync()
        fault("synced")
        batch = partition.next_batch(self._assignment.first, until)
        left = [path for host in self._left for path in partition.names.list_own(host)]
        files = self._output.rows(dict(self._endings.as_texts()))
        written = WrittenBatch(files=files, spans=partition.spans, gaps=missing, left=left)
        store_batch(partition.store, batch, written)
        if self._left:
            partition.names.clear_cache()
        fault("stored")
        return batch
