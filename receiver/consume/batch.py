"""One batch: the messages `[first, until)` of a partition become bytes in files, and are committed.

The steps, in this order, by one task under the partition's lock. If the receiver is killed in or
after a step, this remains:

| step | who does it | what remains |
|---|---|---|
| 1 announce | `Output.flush` | rows of new files and of segments, in the store |
| 2 close | `Output.flush` | some files are renamed to segments; the next start renames the rest |
| 3 append, sync | `Output.flush`, `Output.sync` | new files; bytes behind committed lengths |
| 4 store | `Batch._store` | one transaction: a batch with an id that KV does not have |
| 5 commit | `commit` | KV has the batch's id: from here on the batch counts |
| 6 acknowledge | `commit` | the consumer lags; the next acknowledgement covers this one |

Lines are buffered until there are many for a file, so that steps 1 to 3 may be done several times.

A commit is a compare-and-set on the revision of the partition's entry in KV. Each session begins
with the undo:

1. If the entry does not have the id of the stored batch, the session writes the entry unchanged
   (`OffsetEntry.fence`): the commit of a task that died may still be on its way, and fails now.
2. `recover` (`receiver/storage/recovery.py`) undoes that batch: the lengths before it count.
3. The session fetches the messages again from the offset on. Lines that are in the files already
   are written over themselves (`receiver/storage/surplus.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

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
from receiver.storage.anomalies import Anomaly, format_gaps, name_gap_report
from receiver.storage.database import ROW_ERRORS
from receiver.storage.output import Output
from receiver.storage.recovery import WrittenBatch, store_batch
from receiver.storage.rows import StoredBatch

UNEXPECTED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    *ROW_ERRORS,
)
_LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """How the next batch is written: with at most `most` messages, 0 for no limit.

    With a `poison` the first message goes into quarantine, for that reason.
    """

    most: int = 0
    poison: str = ""


class BatchFailed(Exception):
    """A batch met an unexpected error of our own code; the next attempt follows the `plan`.

    The batch is undone and written again with fewer messages, until only its first message can be
    the cause: the poison, which goes into quarantine. Errors of the machine or of the broker
    (OSError, MemoryError, `ConnectionLost`) are never blamed on a message.
    """

    def __init__(self, harmless: int, error: BaseException) -> None:
        """Plan to write the first `harmless` messages alone; 0: the first message is the poison."""
        reason = f"{type(error).__name__}: {error}"[:_LONGEST]
        self.plan = BatchPlan(harmless) if harmless else BatchPlan(1, reason)
        super().__init__(reason)


@contextmanager
def blame_messages(count_harmless: Callable[[], int]) -> Iterator[None]:
    """Raise `BatchFailed` for an unexpected error inside.

    `count_harmless` then returns how many of the first messages can be tried without the others.
    """
    try:
        yield
    except UNEXPECTED as error:
        raise BatchFailed(count_harmless(), error) from error


_MOST_BUFFERED = MAX_LINES_BYTES  # bytes; zstd may decompress to 256 times as much as was pulled
_MANY_FILES = 256  # fewer files stay open, so appending to them is cheap
_MOST_ANOMALIES = 10_000  # each travels to the driver
_MOST_SOURCES = 20_000  # source files of a batch: each is a row of the store
_WHOLE = BatchPlan()


@dataclass(slots=True)
class _Counts:
    """What the batch has taken so far."""

    messages: int = 0
    lines: int = 0
    size: int = 0  # bytes of lines
    quarantined: int = 0  # messages


@dataclass(slots=True)
class _Buffered:
    """Lines that `Output` buffers: they are not in any file yet."""

    most: int  # bytes for many files; an append to each of these costs more than its lines
    size: int = 0
    files: int = 0

    @property
    def is_for_many(self) -> bool:
        """Whether it is worth to wait for more lines for each file."""
        return self.files > _MANY_FILES

    @property
    def is_full(self) -> bool:
        """Whether to append the lines now."""
        return self.size > (self.most if self.is_for_many else _MOST_BUFFERED)


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
        # For a store without spans: in epoch 1 no message was received before; later another store
        # may have received those before the offset.
        partition.spans.begin(0 if assignment.epoch == 1 else assignment.first - 1)
        self._endings = Endings(open_before=partition.open_line)
        self._judge = Judge(partition.spans)
        self._quarantine = partition.quarantine
        self._counts = _Counts()
        self._buffered = _Buffered(most=assignment.limit + assignment.pull)
        self._is_in_message = False  # while a message is processed, an error is its fault
        self._last: Delivery | None = None
        self._ack = ""
        self._moved_hosts: set[str] = set()  # to another partition
        self._notices: list[str] = []  # of what is so only once the batch is stored
        self.is_full = False
        """Whether the batch takes no more messages."""

    @property
    def lines(self) -> int:
        """How many lines the batch has."""
        return self._counts.lines

    def write(self, messages: Messages) -> int:
        """Take messages, as many as the batch has space for; return how many.

        Their lines are buffered, and appended when there are many for a file or few files. Raises
        OSError, `BatchFailed`.
        """
        with blame_messages(self._count_harmless):
            return self._write(messages)

    def finish(self) -> Done:
        """Do steps 1 to 4 for all lines; return what `commit` commits.

        Raises OSError, `BatchFailed`.
        """
        if self._last is None:
            first = self._assignment.first
            return Done(self._assignment.partition, first, first)
        with blame_messages(self._count_harmless):
            gaps = [one for one in self._judge.anomalies if one.kind.is_gap]
            if gaps:
                partition = self._assignment.partition
                self._output.buffer(name_gap_report(partition), format_gaps(gaps, partition), 0)
            self._flush()
            self._sync()
            batch = self._store(self._last.sequence + 1, gaps)
        return self._describe(self._last, batch.commit_id)

    def _count_harmless(self) -> int:
        """Return how many of the first messages can be written without the poison message.

        If the error came between messages, any of them may be the poison: try the first half.
        """
        taken = self._counts.messages
        return taken if self._is_in_message else taken // 2

    def _write(self, messages: Messages) -> int:
        count, are_first = 0, self._last is None
        for delivery, message in messages:
            if self._last is None:
                self._partition.close_finished(self._output, delivery.stored_at)
            elif not self._belongs(delivery):
                self.is_full = True
            # claims in the first pull were checked before the batch; one in a later pull ends it
            self.is_full |= not are_first and bool(read_follows(message))
            if self.is_full:
                break
            self._take(delivery, message)
            count += 1
        if not self._buffered.is_for_many:
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
            self._buffer_lines(delivery, message, headers)
            self._note_move(message)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            self._counts.quarantined += 1
            self._quarantine.set_aside(delivery, message, str(error))
        with suppress(InvalidHost, InvalidSubject):  # that's fine: the message is in quarantine
            host, before = parse_host(message.subject), read_expected_sequence(headers)
            self._judge.check_predecessor(host, before, delivery.sequence, delivery.stored_at)
        if self._buffered.is_full:
            self._flush()
        self._last, self._ack = delivery, message.reply
        self._counts.messages += 1
        self.is_full |= self._counts.messages == self._plan.most
        self.is_full |= self._output.is_full or len(self._judge.anomalies) >= _MOST_ANOMALIES
        self.is_full |= self._partition.spans.unsaved >= _MOST_SOURCES
        self._is_in_message = False

    def _reject_poison(self, delivery: Delivery, message: RawMessage) -> None:
        """Raise `MalformedMessage` if an earlier attempt has failed at this message."""
        if reason := self._plan.poison:
            self._notices.append(
                f"message {delivery.sequence} of {message.subject} goes into quarantine: "
                f"logship fails to write it ({reason}); please report this defect"
            )
            raise MalformedMessage(reason)

    def _note_move(self, message: RawMessage) -> None:
        """Note whether the host of a message has moved to another partition, or has come back."""
        if read_destination(message) not in {None, self._assignment.partition}:
            self._moved_hosts.add(parse_host(message.subject))
        elif self._moved_hosts and read_follows(message):
            self._moved_hosts.discard(parse_host(message.subject))

    def _buffer_lines(
        self, delivery: Delivery, message: RawMessage, headers: dict[str, str] | None
    ) -> None:
        """Buffer the new lines of a message for their live files; raises `MalformedMessage`."""
        moment, names = delivery.stored_at, self._partition.names
        pieces = self._judge.take(message.subject, headers, message.data, delivery.sequence, moment)
        for piece in pieces:
            live = names.choose(
                piece.host,
                piece.file or None,
                moment,
                is_own=piece.file_id != "",
                has_left=piece.host in self._moved_hosts,
            )
            payload = piece.join(self._endings, live)
            self._counts.lines += piece.lines
            self._counts.size += len(payload)
            self._buffered.size += len(payload)
            self._buffered.files = self._output.buffer(live, payload, moment)

    def _flush(self) -> None:
        """Do steps 1 and 2, and append all buffered lines."""
        self._output.flush()
        self._buffered.size = self._buffered.files = 0

    def _sync(self) -> None:
        """Bring all files to disk: the end of step 3."""
        self._quarantine.sync()
        self._output.sync()
        fault("synced")

    def _store(self, until: int, gaps: list[Anomaly]) -> StoredBatch:
        """Do step 4: lengths, spans, gaps and files of moved hosts, in one transaction."""
        partition = self._partition
        batch = partition.describe_batch(self._assignment.first, until)
        moved = [path for host in self._moved_hosts for path in partition.names.list_own(host)]
        files = self._output.rows(dict(self._endings.as_texts()))
        written = WrittenBatch(files=files, spans=partition.spans, gaps=gaps, moved=moved)
        store_batch(partition.store, batch, written)
        if self._moved_hosts:
            partition.names.clear_cache()
        fault("stored")
        return batch

    def _describe(self, last: Delivery, commit_id: str) -> Done:
        return Done(
            partition=self._assignment.partition,
            first=self._assignment.first,
            until=last.sequence + 1,
            messages=self._counts.messages,
            lines=self._counts.lines,
            size=self._counts.size,
            quarantined=self._counts.quarantined,
            pending=last.pending,
            ack=self._ack,
            commit_id=commit_id,
            stored_at=last.stored_at,
            closed=tuple(self._output.closed),
            anomalies=tuple(self._judge.anomalies),
            notices=(*self._moves.notices, *self._notices),
        )


async def commit(entry: OffsetEntry, connection: Connection, done: Done) -> None:
    """Do step 5, from which on the batch counts, and step 6.

    Raises `EntryTaken` if another receiver owns the partition. Raises `Rejected`, `ConnectionLost`:
    KV may have the batch then or not, which the next session finds out.
    """
    await entry.commit(done)
    fault("committed")
    with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
        await connection.publish(done.ack, b"+ACK")
    fault("acknowledged")
