"""What a Spark task does with an assignment: takes the partition's lock, runs a session there, and reports as a value.

    claim ──▶ fetch ──▶ batch ──▶ files ──▶ store ──▶ claim ──▶ acknowledgement ──┐
                ▲                                                                 │
                └────────────────── the next batch, from there ───────────────────┘

What a batch has written counts from the moment its entry in KV has moved, and is undone by whoever comes next if it has
not. A task never raises for what an operator can run into; an exception here is a defect, and Spark's retry is safe since
every attempt forgets what was before, asks KV, and first undoes what is not committed.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

from broker.app.faults import fault
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.subjects import Subject
from receiver.consume import background
from receiver.consume.assignment import (
    Assignment,
    Blocked,
    Cause,
    Destination,
    Done,
    Ending,
    ForcedRotation,
    Report,
    Superseded,
)
from receiver.consume.batch import Batch
from receiver.consume.claim import EntryTaken, OffsetEntry, hold_against_stream
from receiver.consume.fetch import Chunk, PartitionReader
from receiver.consume.host_moves import MustWait, follows, require_received
from receiver.consume.judging import host_of
from receiver.consume.marked_folders import Elsewhere, look
from receiver.consume.offsets import StreamMismatch, nanoseconds, position_of
from receiver.consume.open_partition import OpenPartition
from receiver.storage.disk import Locked, exclusive_lock
from receiver.storage.folders import make_folder
from receiver.storage.layout import Days
from receiver.storage.position import Damaged

__all__ = ["run", "stand_by"]

_LOCK_PATIENCE = 20.0  # seconds
_KV_PATIENCE = 10.0  # seconds
_MOVE_PATIENCE = 60.0  # seconds; the entry itself gives up before

_CONTRADICTIONS = (Damaged, StreamMismatch, UnreadableOffset)
"""What says that files, state and broker do not go together."""


_CAUSES = {Elsewhere: Cause.REACH, Locked: Cause.LOCKED, MustWait: Cause.MOVED}


@dataclass(slots=True)
class _Committed:
    """What a session has committed so far, whatever ends it, in so many batches and seconds."""

    done: Done
    batches: int = 0
    seconds: float = 0.0


def run(assignment: Assignment, destination: Destination) -> Report:
    """Run a session at a partition and tell what was committed there, and how it ended."""
    first = assignment.first
    committed = _Committed(Done(assignment.partition, first, first))
    ended = _ended(assignment, destination, committed)
    fault("reported")
    return Report(committed.done, committed.batches, ended, committed.seconds)


def stand_by(slot: int) -> None:
    """Do nothing: that this could be called is all."""


def _ended(
    assignment: Assignment, destination: Destination, committed: _Committed
) -> Ending | Blocked | Superseded:
    partition = assignment.partition
    try:
        _look(destination)
        make_folder(destination.output, destination.permissions)
        make_folder(destination.state)
        with exclusive_lock(destination.state / f"p{partition}.lock", _LOCK_PATIENCE):
            return _opened(assignment, destination, committed)
    except (Elsewhere, Locked, MustWait) as error:
        return Blocked(partition, _CAUSES[type(error)], str(error))
    except (ConnectionLost, Rejected, TimeoutError) as error:
        return Blocked(partition, Cause.BROKER, _words(error))
    except OSError as error:
        return Blocked(partition, Cause.DISK, _describe(error))
    except _CONTRADICTIONS as error:
        return Blocked(partition, Cause.STATE, str(error))


def _look(destination: Destination) -> None:
    for one in destination.folders:
        look(one)


def _words(error: ConnectionLost | Rejected | TimeoutError) -> str:
    if isinstance(error, Rejected):
        return f"the broker refuses: {error}; run `logbroker apply`"
    return str(error) or type(error).__name__


def _describe(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"


def _opened(
    assignment: Assignment, destination: Destination, committed: _Committed
) -> Ending | Blocked | Superseded:
    """Ask KV where the partition goes on, and run a session from there; raises what broker, disk and state raise."""
    connection = background.connection(destination.servers, destination.access)
    entry = OffsetEntry(connection, assignment.partition, _now)
    offset = background.wait(entry.read(assignment.epoch, assignment.first), _KV_PATIENCE)
    if objection := _objection(assignment, offset):
        return objection
    assert offset is not None, "or there is an objection"
    committed.done = Done(assignment.partition, offset.next, offset.next)
    passed = nanoseconds(offset.last_time)
    position = position_of(offset)
    with OpenPartition(assignment, destination, position, passed, offset.lines) as partition:
        session = _Session(assignment, destination, connection, entry, partition, committed)
        try:
            return session.run(offset)
        except EntryTaken as taken:
            return _lost(assignment, taken.found)


def _objection(assignment: Assignment, offset: Offset | None) -> Blocked | Superseded | None:
    partition, epoch = assignment.partition, assignment.epoch
    if offset is None or offset.epoch > epoch:
        return _lost(assignment, offset)
    if offset.epoch < epoch:
        return Blocked(
            partition,
            Cause.STATE,
            f"the offset is of epoch {offset.epoch}, before ours ({epoch}): it was restored, "
            "or a replica of the broker is behind",
        )
    if offset.next < assignment.first:
        return Blocked(
            partition,
            Cause.STATE,
            f"the offset is {offset.next}, but {assignment.first} was committed: somebody has moved it back",
        )
    return None


def _lost(assignment: Assignment, found: Offset | None) -> Blocked | Superseded:
    partition = assignment.partition
    if found is not None and found.epoch == assignment.epoch:
        return Blocked(partition, Cause.LOCKED, "another attempt of the same task is at work there")
    owner = found.owner if found else "nobody"
    successor = found.owner if found and not found.is_moved else ""
    return Superseded(partition, f"it belongs to {owner} by now", successor)


class _Session:
    """Batch after batch is fetched, written, committed and acknowledged; whoever holds the partition's lock may have one."""

    def __init__(
        self,
        assignment: Assignment,
        destination: Destination,
        connection: Connection,
        entry: OffsetEntry,
        partition: OpenPartition,
        committed: _Committed,
    ) -> None:
        """Begin with nothing committed."""
        self._assignment = assignment
        self._destination = destination
        self._connection = connection
        self._entry = entry
        self._partition = partition
        self._committed = committed
        self._began = time.monotonic()
        self._fetched = 0.0

    def run(self, offset: Offset) -> Ending:
        """Recover, and go on as long as there is a reason to; raises `EntryTaken`, and what broker, disk and state raise."""
        self._recover()
        if self._assignment.rotation is not ForcedRotation.NONE:
            return self._close_files()
        with PartitionReader(
            self._connection, self._assignment, offset.next, offset.stream
        ) as reading:
            ended = self._receive(reading, offset)
        if self._committed.done.closed:
            self._partition.store.settle()  # closed files may be compressed and removed
        return ended

    def _recover(self) -> None:
        """Make the files what the offset says, before anything is added."""
        partition, committed = self._partition, self._committed
        if partition.has_stored:
            # who wrote it may have died with its move sent: it must not arrive when it is undone
            background.wait(self._entry.fence(), _MOVE_PATIENCE)
            fault("fenced")
        notices = partition.recover()
        partition.spans.forget(time.time_ns())
        committed.done = replace(committed.done, notices=tuple(notices))

    def _receive(self, reading: PartitionReader, offset: Offset) -> Ending:
        session, left = self._assignment.session, self._assignment.session.longest
        while True:
            began = time.monotonic()
            done = self._batch(reading, min(session.silence, left), offset)
            if done is None:
                return Ending.ASKED if reading.is_wanted_elsewhere else Ending.SILENCE
            self._commit(done)
            if reading.is_wanted_elsewhere:
                return Ending.ASKED
            left = self._left()
            if left <= 0:
                return Ending.TIME
            if not done.pending:
                reading.rest(began + session.rest(done.size) - time.monotonic())

    def _left(self) -> float:
        session, done = self._assignment.session, self._committed.done
        longest = session.longest
        if done.pending or done.has_news:
            longest = min(longest, session.telling)
        return self._began + longest - time.monotonic()

    def _batch(self, reading: PartitionReader, wait: float, offset: Offset) -> Done | None:
        """Write the next batch; None when nothing came in time."""
        chunks = reading.batch(wait)
        first = next(chunks, None)
        if first is None:
            return None
        self._fetched = time.monotonic()
        if (
            not self._committed.batches
        ):  # another stream would have no consumer that we could go on with
            held = hold_against_stream(self._connection, offset, self._assignment.partition)
            background.wait(held, _KV_PATIENCE)
        _look(self._destination)  # from now on its disk cannot be unmounted
        self._take_over(first, offset)
        begin = self._committed.done.until
        with self._partition.writing() as writing:
            batch = Batch(replace(self._assignment, first=begin), self._partition, writing)
            try:
                return _written(batch, chain([first], chunks), reading)
            except OSError:
                self._told(tuple(writing.output.notices))
                with suppress(OSError, Damaged):  # else the next start takes it back
                    self._partition.recover_anew(begin)
                raise

    def _take_over(self, first: Chunk, offset: Offset) -> None:
        """Take over the files of a host that goes on here, by the first message of a batch; raises `MustWait`."""
        delivery, message = first.messages[0]
        if ends := follows(message):
            host = host_of(message.subject)
            subject = Subject(self._assignment.partition, host)
            received = require_received(
                *(self._connection, subject, ends, delivery, offset), self._destination.streams
            )
            self._partition.take_over(host, background.wait(received, _KV_PATIENCE))

    def _told(self, notices: tuple[str, ...]) -> None:
        done = self._committed.done
        self._committed.done = replace(done, notices=done.notices + notices)

    def _commit(self, done: Done) -> None:
        background.wait(self._moved(done), _MOVE_PATIENCE)
        committed = self._committed
        committed.done = committed.done.then(done)
        committed.batches += 1
        committed.seconds += time.monotonic() - self._fetched

    async def _moved(self, done: Done) -> None:
        await self._entry.move(done)
        fault("committed")
        with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
            await self._connection.publish(done.ack, b"+ACK")
        fault("acknowledged")

    def _close_files(self) -> Ending:
        """Close live files though no line comes: all that have lines, or those whose period is over."""
        _look(self._destination)
        assignment, partition, committed = self._assignment, self._partition, self._committed
        now = time.time_ns()
        begin = partition.calendar.period(now).begin
        today = Days(partition.zone).date(now) if partition.layout.has_date else ""
        unfinished = {live: file for live, (_, file) in partition.unfinished().items()}
        with partition.writing() as writing:
            rows = partition.store.files(
                "host != '' AND length > 0 AND path NOT IN (SELECT path FROM segments)"
            )
            output = writing.output
            output.close_files(
                row.path
                for row in rows
                if row.day >= today
                and (assignment.rotation is ForcedRotation.ALL or row.last_line < begin)
            )
            output.sync()
            at = replace(assignment, first=committed.done.until)
            with partition.store.transaction():
                output.put(writing.stored(at, at.first), today, unfinished)
            fault("turned")
            committed.done = replace(committed.done, closed=tuple(output.closed))
            self._told(tuple(output.notices))
        return Ending.SILENCE


def _written(batch: Batch, chunks: Iterator[Chunk], reading: PartitionReader) -> Done:
    """Write a batch to its end; what it has no room for comes first in the next one."""
    fault("fetched")
    for number, chunk in enumerate(chunks):
        count = batch.write(chunk)
        if number == 0:
            fault("appended")
        if batch.is_full:  # also where the chunk ends with the message that filled it
            reading.end_batch(chunk.behind(count))
    return batch.finish()


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
