"""A stay at a partition: batch after batch is fetched, written, committed and acknowledged, under the partition's lock.

    entry ──▶ reading ──▶ batch ──▶ files ──▶ store ──▶ entry ──▶ acknowledgement ──┐
                 ▲                                                                  │
                 └────────────────── the next batch, from there ────────────────────┘

What a batch has written counts from the moment its entry has moved, and is undone by whoever comes next if it has not.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from broker.app.faults import fault
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from receiver.consume import background
from receiver.consume.assignment import Assignment, Destination, Turn
from receiver.consume.attempts import DEADLY, Attempt, Attempts
from receiver.consume.batch import Batch
from receiver.consume.entry import Entry, Taken, nanoseconds
from receiver.consume.fetch import Chunk, Reading
from receiver.consume.judging import Kind
from receiver.consume.ledger import hold_against_stream
from receiver.consume.offsets import StreamMismatch, position_of
from receiver.consume.open_partition import OpenPartition
from receiver.consume.outcome import Blocked, Cause, Done, Ending, Superseded
from receiver.consume.place import look
from receiver.storage.layout import Days
from receiver.storage.position import Damaged

__all__ = ["CONTRADICTIONS", "Stay"]

CONTRADICTIONS = (Damaged, StreamMismatch, UnreadableOffset)
"""What says that files, state and broker do not go together."""

_KV_PATIENCE = 10.0  # seconds
_MOVE_PATIENCE = 60.0  # seconds; the entry itself gives up before


class Stay:
    """One stay; whoever holds the partition's lock may have one.

    `done` is what it has committed, whatever ends it, in so many `batches` and `seconds`.
    """

    def __init__(
        self,
        assignment: Assignment,
        destination: Destination,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nothing committed; `clock` counts seconds."""
        self._assignment = assignment
        self._destination = destination
        self._clock = clock
        self._began = 0.0
        self.done = Done(assignment.partition, assignment.first, assignment.first)
        self.batches = 0
        self.seconds = 0.0
        self._same_stream: Callable[[], None] = lambda: None
        self._attempt = Attempt()
        self._fetched = 0.0

    def run(self) -> Ending | Blocked | Superseded:
        """Stay as long as there is a reason to; raises what broker, disk and state raise."""
        self._began = self._clock()
        connection = background.connection(self._destination.servers, self._destination.access)
        entry = Entry(connection, self._assignment.partition, _now)
        known = (self._assignment.epoch, self._assignment.first)
        offset = background.wait(entry.read(*known), _KV_PATIENCE)
        if objection := self._objection(offset):
            return objection
        assert offset is not None, "or there is an objection"
        self.done = Done(self._assignment.partition, offset.next, offset.next)
        passed = max(nanoseconds(offset.last_time), self._assignment.passed)
        position = position_of(offset)
        with OpenPartition(
            self._assignment, self._destination, position, passed, offset.lines
        ) as partition:
            try:
                self._recover(partition, entry)
            except Taken as taken:
                return self._lost(taken.found)
            if self._assignment.turn is not Turn.NONE:
                return self._close_files(partition)
            self._same_stream = lambda: background.wait(
                hold_against_stream(connection, offset, self._assignment.partition), _KV_PATIENCE
            )
            ended = self._receive(partition, connection, entry, offset)
            if isinstance(ended, Ending) and self.done.closed:
                partition.store.settle()  # closed files may be compressed and removed
            return ended

    def _receive(
        self, partition: OpenPartition, connection: Connection, entry: Entry, offset: Offset
    ) -> Ending | Blocked | Superseded:
        note = self._destination.state / f"p{self._assignment.partition}.attempt"
        with closing(Attempts(note)) as attempts:
            self._attempt = attempts.read().next(
                offset.stream_created, self._assignment.epoch, offset.next
            )
            with Reading(connection, self._assignment, offset.next, self._attempt.most) as reading:
                return self._follow(reading, partition, connection, entry, attempts)

    def _follow(
        self,
        reading: Reading,
        partition: OpenPartition,
        connection: Connection,
        entry: Entry,
        attempts: Attempts,
    ) -> Ending | Blocked | Superseded:
        stay, left = self._assignment.stay, self._assignment.stay.longest
        while True:
            began = self._clock()
            done = self._batch(reading, partition, attempts, min(stay.silence, left))
            if done.until == done.first:
                return Ending.ASKED if reading.is_wanted_elsewhere else Ending.SILENCE
            try:
                background.wait(_commit(connection, entry, done), _MOVE_PATIENCE)
            except Taken as taken:
                return self._lost(taken.found)
            self.done = self.done.then(done)
            self.batches += 1
            self.seconds += self._clock() - self._fetched
            if any(finding.kind in {Kind.GAP, Kind.LOSS} for finding in done.findings):
                partition.tell_gaps()
            if reading.is_wanted_elsewhere:
                return Ending.ASKED
            left = self._left()
            if left <= 0:
                return Ending.TIME
            if not done.pending:
                reading.rest(began + stay.rest(done.size) - self._clock())

    def _left(self) -> float:
        if self._attempt.most:  # there was a part of what is there
            return 0.0
        stay, done = self._assignment.stay, self.done
        longest = stay.longest
        if done.pending or done.has_news:
            longest = min(longest, stay.telling)
        return self._began + longest - self._clock()

    def _batch(
        self, reading: Reading, partition: OpenPartition, attempts: Attempts, wait: float
    ) -> Done:
        assignment = replace(self._assignment, first=self.done.until)
        chunks = reading.batch(wait)
        first = next(chunks, None)
        if first is None:
            return Done(assignment.partition, assignment.first, assignment.first)
        self._fetched = self._clock()
        if not self.batches:
            self._same_stream()  # another one would have no consumer that we could go on with
        self._look()
        with partition.writing() as writing:
            batch = Batch(assignment, partition, writing)
            try:
                return self._attempted(batch, first, chunks, reading, attempts)
            except OSError:
                notices = tuple(writing.output.notices)
                self.done = replace(self.done, notices=self.done.notices + notices)
                with suppress(OSError, Damaged):  # else the next start takes it back
                    partition.recover_anew(self.done.until)
                raise

    def _look(self) -> None:
        for place in self._destination.places:  # from now on its disk cannot be unmounted
            look(place)

    def _attempted(
        self,
        batch: Batch,
        first: Chunk,
        chunks: Iterator[Chunk],
        reading: Reading,
        attempts: Attempts,
    ) -> Done:
        """Write a batch to its end; whatever is reported of it is no death of a worker."""
        try:
            fault("fetched")
            self._write(batch, first, chunks, reading, attempts)
            done = batch.finish()
        except OSError:
            batch.drop()
            with suppress(OSError):
                attempts.write(self._attempt)
            raise
        except (ConnectionLost, Rejected, *CONTRADICTIONS):
            attempts.write(self._attempt)
            raise
        ended = self._attempt.ended(done.until)
        attempts.write(ended)
        if not self._attempt.most:  # else the stay is over
            self._attempt = ended.next(self._attempt.stream, self._assignment.epoch, done.until)
        return done

    def _write(
        self,
        batch: Batch,
        first: Chunk,
        chunks: Iterator[Chunk],
        reading: Reading,
        attempts: Attempts,
    ) -> None:
        """Write the chunks, each of which is noted before: whoever dies over it leaves the note behind.

        A batch that is full before its last chunk is written ends there.
        """
        attempt, count = self._attempt, 0
        for chunk in chain([first], chunks):
            if attempt.is_hopeless:
                batch.set_aside(chunk, f"{DEADLY} workers died over it; it was not looked at again")
                continue
            count += len(chunk.messages)
            attempts.write(attempt.begun(chunk.last.sequence + 1, count))
            if rest := batch.write(chunk):
                reading.put_back(rest)
            if chunk is first:
                fault("appended")

    def _close_files(self, partition: OpenPartition) -> Ending:
        """Close live files though no line comes: all that have lines, or those whose period is over."""
        self._look()
        now = time.time_ns()
        begin = partition.calendar.period(now).begin
        today = Days(partition.zone).date(now) if partition.layout.has_date else ""
        unfinished = {live: file for live, (_, file) in partition.unfinished().items()}
        with partition.writing() as writing:
            rows = partition.store.files("length > 0 AND path NOT IN (SELECT path FROM segments)")
            output = writing.output
            output.close_files(
                row.path
                for row in rows
                if row.day >= today and (self._assignment.turn is Turn.ALL or row.last_line < begin)
            )
            output.sync()
            assignment = replace(self._assignment, first=self.done.until)
            with partition.store.transaction():
                output.put(writing.stored(assignment, assignment.first), today, unfinished)
            fault("turned")
            closed, notices = tuple(output.closed), tuple(output.notices)
        self.done = replace(self.done, closed=closed, notices=self.done.notices + notices)
        return Ending.SILENCE

    def _recover(self, partition: OpenPartition, entry: Entry) -> None:
        """Make the files what the offset says, before anything is added; raises `Taken`."""
        if (
            partition.has_stored
        ):  # who wrote it may have died with its move sent: it must not arrive when it is undone
            background.wait(entry.fence(), _MOVE_PATIENCE)
            fault("fenced")
        notices = partition.recover()
        partition.tell_gaps()
        forgotten, words = partition.spans.forget(time.time_ns())
        self.done = replace(self.done, notices=(*notices, *words), forgotten=forgotten)

    def _objection(self, offset: Offset | None) -> Blocked | Superseded | None:
        partition, epoch = self._assignment.partition, self._assignment.epoch
        if offset is not None and offset.epoch < epoch:
            return Blocked(
                partition,
                Cause.STATE,
                f"the offset is of epoch {offset.epoch}, before ours ({epoch}): it was restored, "
                "or a replica of the broker is behind",
            )
        if offset is None or offset.epoch != epoch:
            return self._lost(offset)
        if offset.next < self._assignment.first:
            return Blocked(
                partition,
                Cause.STATE,
                f"the offset is {offset.next}, but {self._assignment.first} was committed: somebody has moved it back",
            )
        return None

    def _lost(self, found: Offset | None) -> Blocked | Superseded:
        partition = self._assignment.partition
        if found is not None and found.epoch == self._assignment.epoch:
            return Blocked(
                partition, Cause.LOCKED, "another attempt of the same task is at work there"
            )
        owner = found.owner if found else "nobody"
        successor = found.owner if found and not found.is_moved else ""
        return Superseded(partition, f"it belongs to {owner} by now", successor)


async def _commit(connection: Connection, entry: Entry, done: Done) -> None:
    await entry.move(done)
    fault("committed")
    with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
        await connection.publish(done.ack, b"+ACK")
    fault("acknowledged")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
