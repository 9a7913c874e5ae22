"""One batch: the messages `[first, until)` of a partition become bytes in files, and are committed.

The steps, in this order, by one task under the partition's lock. If the receiver is killed after a
step, this is left:

| step | who does it | left by a kill |
|---|---|---|
| 1 announce | `Output.flush` | rows of new files and of rotations; files that are still empty |
| 2 append and sync | `Output.flush`, `Batch._sync` | bytes behind the committed lengths |
| 3 store | `Batch._store` | one transaction: a batch with an id that KV does not have |
| 4 commit | `commit` | KV has the batch's id: from here on the batch counts |
| 5 acknowledge | `commit` | the consumer lags; the next acknowledgement covers this one |

Each session first undoes what is not committed, by the id in KV (`receiver/storage/recovery.py`),
and then fetches the messages again from the offset on.
"""

from contextlib import suppress
from dataclasses import replace

from nats_logship.app.faults import fault
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import Messages
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.endings import Endings
from nats_logship.wire.message import MAX_LINES_BYTES, MalformedMessage
from nats_logship.wire.subjects import InvalidHost, InvalidSubject
from receiver.consume.assignment import Assignment, Done
from receiver.consume.host_claims import Moves, read_destination, read_follows
from receiver.consume.judging import Judge, parse_host, read_expected_sequence
from receiver.consume.offset_entry import OffsetEntry
from receiver.consume.partition import OpenPartition
from receiver.consume.poison import BatchPlan, blame_messages
from receiver.storage.anomalies import Anomaly, AnomalyKind, format_gaps, name_gap_report
from receiver.storage.output import Output
from receiver.storage.recovery import WrittenBatch, store_batch
from receiver.storage.rows import StoredBatch

_MOST_HELD = MAX_LINES_BYTES  # bytes; a few KiB of zstd may decompress to a thousand times as much
_MANY_FILES = 256  # fewer files stay open, so appending to them is cheap
_MOST_ANOMALIES = 10_000  # each travels to the driver
_MOST_SOURCES = 20_000  # source files of a batch: each is a row of the store
_WHOLE = BatchPlan()
_MISSING = (AnomalyKind.GAP, AnomalyKind.LOSS)


class Batch:
    """A batch while it is written; used by one thread, under the partition's lock."""

    def __init__(
        self,
        assignment: Assignment,
        partition: OpenPartition,
        output: Output,
        moves: Moves | None = None,
        plan: BatchPlan = _WHOLE,
    ) -> None:
        """Begin without touching a file; `moves` is about the claims in the first messages."""
        self._assignment = assignment
        self._plan = plan
        self._partition = partition
        self._output = output
        self._moves = moves or Moves()
        partition.spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = Endings(open_before=partition.open_line)
        self._judge = Judge(partition.spans)
        self._quarantine = partition.quarantine
        self._done = Done(assignment.partition, assignment.first, assignment.first)
        self._messages = self._lines = self._size = self._quarantined = 0
        self._is_in_message = False
        self._held = self._files = 0  # bytes that are not appended yet, for so many files
        self._most_of_many = assignment.limit + assignment.pull  # bytes held for many files
        self._last: Delivery | None = None
        self._ack = ""
        self._left: set[str] = set()  # hosts that have gone to another partition
        self.is_full = False
        """Whether the batch takes no more messages."""

    def write(self, messages: Messages) -> int:
        """Announce and append the lines of messages; return how many messages the batch takes.

        Lines for many files are held until there are more for each: opening a file costs more than
        its lines. Raises OSError, `BatchFailed`.
        """
        with blame_messages(self._count_harmless):
            return self._write(messages)

    def finish(self) -> Done:
        """Do steps 1 to 3 for what is held; return what `commit` commits.

        Raises OSError, `BatchFailed`.
        """
        if self._last is None:
            return self._done
        with blame_messages(self._count_harmless):
            missing = [one for one in self._judge.anomalies if one.kind in _MISSING]
            if missing:
                number = self._assignment.partition
                self._output.buffer(name_gap_report(number), format_gaps(missing, number), 0)
            self._flush()
            self._sync()
            batch = self._store(self._last.sequence + 1, missing)
        return self._describe(self._last, batch.commit_id)

    def _count_harmless(self) -> int:
        """Return how many of the first messages can be written without the poison message."""
        return self._messages if self._is_in_message else self._messages // 2

    def _write(self, messages: Messages) -> int:
        count, are_first = 0, self._last is None
        for delivery, message in messages:
            if self._last is None:
                self._partition.close_finished(self._output, delivery.stored_at)
            elif not self._belongs(delivery):
                self.is_full = True
            # claims in the first messages were examined together; a later one begins a new batch
            self.is_full |= not are_first and bool(read_follows(message))
            if self.is_full:
                break
            self._take(delivery, message)
            count += 1
        if self._files <= _MANY_FILES:
            self._flush()
        return count

    def _belongs(self, delivery: Delivery) -> bool:
        is_in_period = self._output.accepts(delivery.stored_at)
        return is_in_period and delivery.sequence != self._moves.until

    def _take(self, delivery: Delivery, message: RawMessage) -> None:
        self._is_in_message, headers = True, message.headers
        try:
            self._reject_poison(delivery, message)
            self._moves.require_valid(delivery)
            self._hold_lines(delivery, message, headers)
            self._note_move(message)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            self._quarantined += 1
            self._quarantine.set_aside(delivery, message, str(error))
        with suppress(InvalidHost, InvalidSubject):  # that's fine: the message is in quarantine
            host, before = parse_host(message.subject), read_expected_sequence(headers)
            self._judge.check_predecessor(host, before, delivery.sequence, delivery.stored_at)
        if self._held > (self._most_of_many if self._files > _MANY_FILES else _MOST_HELD):
            self._flush()
        self._last, self._ack = delivery, message.reply
        self._messages += 1
        self.is_full |= self._messages == self._plan.most
        self.is_full |= self._output.is_full or len(self._judge.anomalies) >= _MOST_ANOMALIES
        self.is_full |= self._partition.spans.unsaved >= _MOST_SOURCES
        self._is_in_message = False

    def _reject_poison(self, delivery: Delivery, message: RawMessage) -> None:
        """Raise `MalformedMessage` if an earlier attempt has failed at this message."""
        if reason := self._plan.poison:
            self._output.notices.append(
                f"message {delivery.sequence} of {message.subject} goes into quarantine: "
                f"logship fails to write it ({reason}); please report this defect"
            )
            raise MalformedMessage(reason)

    def _note_move(self, message: RawMessage) -> None:
        """Note whether the host of a message has gone to another partition, or has come back."""
        if read_destination(message) not in {None, self._assignment.partition}:
            self._left.add(parse_host(message.subject))
        elif self._left and read_follows(message):
            self._left.discard(parse_host(message.subject))

    def _hold_lines(
        self, delivery: Delivery, message: RawMessage, headers: dict[str, str] | None
    ) -> None:
        """Hold the new lines of a message for their live files; raises `MalformedMessage`."""
        moment, names = delivery.stored_at, self._partition.names
        pieces = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        for piece in pieces:
            live = names.choose(
                piece.host,
                piece.file or None,
                moment,
                is_own=piece.file_id != "",
                has_left=piece.host in self._left,
            )
            payload = piece.join(self._endings, live)
            self._lines += piece.lines
            self._size += len(payload)
            self._held += len(payload)
            self._files = self._output.buffer(live, payload, moment)

    def _flush(self) -> None:
        """Announce and append the lines that are held."""
        self._output.flush()
        self._held = self._files = 0

    def _sync(self) -> None:
        """Bring all files to disk: the end of step 2."""
        self._quarantine.sync()
        self._output.sync()
        fault("synced")

    def _store(self, until: int, missing: list[Anomaly]) -> StoredBatch:
        """Do step 3: lengths, spans, gaps and hosts that left, in one transaction."""
        partition = self._partition
        batch = partition.describe_batch(self._assignment.first, until)
        left = [path for host in self._left for path in partition.names.list_own(host)]
        files = self._output.rows(dict(self._endings.as_texts()))
        written = WrittenBatch(files=files, spans=partition.spans, gaps=missing, left=left)
        store_batch(partition.store, batch, written)
        if self._left:
            partition.names.clear_cache()
        fault("stored")
        return batch

    def _describe(self, last: Delivery, commit_id: str) -> Done:
        return replace(
            self._done,
            until=last.sequence + 1,
            messages=self._messages,
            lines=self._lines,
            size=self._size,
            quarantined=self._quarantined,
            pending=last.pending,
            ack=self._ack,
            commit=commit_id,
            stored_at=last.stored_at,
            closed=tuple(self._output.closed),
            anomalies=tuple(self._judge.anomalies),
            notices=tuple(self._output.collect_notices()),
        )


async def commit(entry: OffsetEntry, connection: Connection, done: Done) -> None:
    """Do step 4, from which on the batch counts, and step 5.

    Raises `EntryTaken` if another receiver owns the partition. Raises `Rejected`, `ConnectionLost`:
    KV may have the batch then or not, which the next session finds out.
    """
    await entry.commit(done)
    fault("committed")
    with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
        await connection.publish(done.ack, b"+ACK")
    fault("acknowledged")
