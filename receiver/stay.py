"""A stay at a partition: batch after batch is fetched, written, committed and acknowledged, under the partition's lock.

    entry ──▶ reading ──▶ batch ──▶ files ──▶ entry ──▶ acknowledgement ──┐
                 ▲                                                       │
                 └───────────── the next batch, from there ──────────────┘

What a batch has written counts from the moment its entry has moved, and is undone by whoever comes next if it has not.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from broker.app.faults import fault
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.offset import Offset, UnreadableOffset
from receiver.assignment import Assignment, Destination, Turn
from receiver.following.ledger import hold_against_stream
from receiver.following.offsets import StreamMismatch
from receiver.outcome import Blocked, Cause, Done, Ending, Superseded
from receiver.reading import background
from receiver.reading.fetch import Chunk, Reading
from receiver.writing import journal, upkeep
from receiver.writing.attempts import DEADLY, Attempt, Attempts
from receiver.writing.batch import Batch
from receiver.writing.calendar import Calendar
from receiver.writing.entry import Entry, Taken, nanoseconds
from receiver.writing.files import Damaged, Output
from receiver.writing.gaps import DamagedGaps
from receiver.writing.journal import DamagedJournal, Verdict
from receiver.writing.layout import Days, Layout
from receiver.writing.lengths import Lengths
from receiver.writing.logbook import Logbook
from receiver.writing.place import look
from receiver.writing.spanbook import DamagedSpans, SpanBook
from receiver.writing.spans import Kind
from receiver.writing.turning import leave, lives_of, turn
from receiver.zones import named_zone

__all__ = ["CONTRADICTIONS", "Stay"]

CONTRADICTIONS = (
    Damaged,
    DamagedJournal,
    DamagedSpans,
    DamagedGaps,
    StreamMismatch,
    UnreadableOffset,
)
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
        self._path = destination.state / f"p{assignment.partition}"
        self._zone = named_zone(destination.time_zone)
        self._calendar = Calendar(destination.rotate_every, self._zone)
        self._layout = Layout(destination.path_template)
        self._passed = 0
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
        self._passed = nanoseconds(offset.last_time)
        self.done = Done(self._assignment.partition, offset.next, offset.next)
        upkeep.clear_away(self._destination.state, self._assignment.partition)
        with (
            Logbook(self._path.with_suffix(".journal")) as logbook,
            Lengths(self._path.with_suffix(".lengths"), self._layout) as lengths,
        ):
            self._lengths = lengths
            try:
                if objection := self._settle(logbook, offset, entry):
                    return objection
            except Taken as taken:
                return self._lost(taken.found)
            if self._assignment.turn is not Turn.NONE:
                return self._turn(logbook)
            self._same_stream = lambda: background.wait(
                hold_against_stream(connection, offset, self._assignment.partition), _KV_PATIENCE
            )
            with closing(Attempts(self._path.with_suffix(".attempt"))) as attempts:
                self._attempt = attempts.read().next(
                    offset.stream_created, self._assignment.epoch, offset.next
                )
                with Reading(
                    connection, self._assignment, offset.next, self._attempt.most
                ) as reading:
                    ended = self._follow(reading, logbook, connection, entry, attempts)
            if isinstance(ended, Ending):
                self._settle_last(logbook)
            return ended

    def _follow(
        self,
        reading: Reading,
        logbook: Logbook,
        connection: Connection,
        entry: Entry,
        attempts: Attempts,
    ) -> Ending | Superseded | Blocked:
        stay, left = self._assignment.stay, self._assignment.stay.longest
        while True:
            began = self._clock()
            done = self._batch(reading, logbook, attempts, min(stay.silence, left))
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
                self._tend()
            if reading.is_wanted_elsewhere:
                return Ending.ASKED
            left = self._left()
            if left <= 0:
                return Ending.TIME
            if not done.pending:
                reading.rest(began + stay.rest(done.size) - self._clock())

    def _settle_last(self, logbook: Logbook) -> None:
        """Say that the last batch, which is committed, will not be undone: its closed files may be compressed and removed."""
        if self.batches or (logbook.last and not logbook.last.is_settled):
            logbook.start(self._assignment.epoch, self.done.until, ())
            logbook.end(self.done.until)

    def _left(self) -> float:
        if self._attempt.most:  # there was a part of what is there
            return 0.0
        stay, done = self._assignment.stay, self.done
        longest = stay.longest
        if done.pending or done.has_news:
            longest = min(longest, stay.telling)
        return self._began + longest - self._clock()

    def _batch(self, reading: Reading, logbook: Logbook, attempts: Attempts, wait: float) -> Done:
        destination = self._destination
        passed = max(self._passed, self.done.latest)
        assignment = replace(self._assignment, first=self.done.until, passed=passed)
        chunks = reading.batch(wait)
        first = next(chunks, None)
        if first is None:
            return Done(assignment.partition, assignment.first, assignment.first)
        self._fetched = self._clock()
        if not self.batches:
            self._same_stream()  # another one would have no consumer that we could go on with
        with self._output() as output:
            spans = SpanBook(self._path.with_suffix(".spans"))
            if notice := spans.loss(logbook.spans):
                output.notices.append(notice)
            batch = Batch(assignment, destination, logbook, output, spans)
            return self._attempted(batch, first, chunks, reading, attempts)

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
            with suppress(OSError, Damaged):  # the journal still says what is to be undone
                batch.undo()
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

    def _turn(self, logbook: Logbook) -> Ending:
        with self._output() as output:
            now = time.time_ns()
            begin = output.calendar.period(now).begin
            position = (self._assignment.epoch, self.done.until)
            lives = lives_of(self._destination.output, self._assignment.partition)
            over = self._layout.of_earlier_days(lives, Days(self._zone).date(now))
            closed = turn(
                logbook,
                output,
                (live for live in lives if live not in over),
                position,
                lambda moment: self._assignment.turn is Turn.ALL or moment < begin,
            )
            closed += leave(logbook, over, position)
            self.done = replace(self.done, closed=closed, notices=tuple(output.notices))
        return Ending.SILENCE

    @contextmanager
    def _output(self) -> Iterator[Output]:
        destination = self._destination
        with Output(
            destination.output,
            destination.rotate_size,
            self._calendar,
            self._lengths,
            destination.permissions,
        ) as output:
            for place in destination.places:  # from now on its disk cannot be unmounted
                look(place)
            yield output

    def _settle(self, logbook: Logbook, offset: Offset, entry: Entry) -> Blocked | None:
        """Make the files what the offset says they are, before anything is added; raises `Taken`."""
        partition, destination = self._assignment.partition, self._destination
        is_passed = False
        if journal.is_accepted(logbook.last, offset.lineage):
            is_passed = self._is_passed(logbook)
            logbook.accept_spans()
        match journal.decide(
            *(logbook.last, offset.next, offset.epoch, offset.lineage), is_passed=is_passed
        ):
            case Verdict.NEWER | Verdict.FOREIGN:
                # not even NEWER makes us a zombie: KV, asked under the lock, says that we own the partition
                return Blocked(partition, Cause.STATE, self._foreign(logbook, offset.next))
            case Verdict.UNDO:
                last = logbook.last
                assert last is not None, "or there is nothing to undo"
                if last.images:  # who wrote them may have died with its move sent: it must not arrive when they are gone
                    background.wait(entry.fence(), _MOVE_PATIENCE)
                    fault("fenced")
                with self._output() as output:
                    upkeep.undo(last, output, destination.state, partition)
                    self.done = replace(self.done, notices=tuple(output.notices))
                fault("undone")
                spans = [image for image in last.images if image.name == f"p{partition}.spans"]
                logbook.settle(offset.epoch, offset.next, spans)
                fault("settled")
            case Verdict.CLEAN if logbook.last is None and _has_commits(offset):
                return Blocked(partition, Cause.STATE, self._bare())
            case Verdict.CLEAN:
                self._look_at_spans(logbook, offset)
                self._tend()
        return None

    def _is_passed(self, logbook: Logbook) -> bool:
        """Whether spans were written behind a batch that has no end in the journal: it was cut there."""
        if not logbook.spans or logbook.last is None or logbook.last.until is not None:
            return False
        try:
            return SpanBook(self._path.with_suffix(".spans")).seal != logbook.spans
        except DamagedSpans:
            return False

    def _look_at_spans(self, logbook: Logbook, offset: Offset) -> None:
        book = SpanBook(self._path.with_suffix(".spans"))
        if notice := book.loss(logbook.spans):
            self.done = replace(self.done, notices=(notice,))
            logbook.start(offset.epoch, offset.next, ())
            logbook.end(offset.next, book.seal)  # told once

    def _tend(self) -> None:
        destination = self._destination
        upkeep.tend(
            *(destination.state, destination.output, self._assignment.partition), time.time_ns()
        )

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

    def _bare(self) -> str:
        return (
            f"{self._path.with_suffix('.journal')} was removed or emptied by somebody else: bring it back; where it is "
            "lost, the next start of the receiver says how to go on without it"
        )

    def _foreign(self, logbook: Logbook, first: int) -> str:
        last, partition = logbook.last, self._assignment.partition
        reached = (last.until or last.first) if last else 0
        return (
            f"the files under {self._destination.output} were written up to sequence {reached}, but the offset of partition "
            f"{partition} is {first}: they do not belong together; bring back the right files, or "
            f"`logreceiver offsets set --partition {partition} --to {reached}` goes on behind these"
        )


def _has_commits(offset: Offset) -> bool:
    """Whether its present owner has committed something: a journal says so too."""
    return bool(offset.lineage) and offset.lineage[-1].next < offset.next


async def _commit(connection: Connection, entry: Entry, done: Done) -> None:
    await entry.move(done)
    fault("committed")
    with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
        await connection.publish(done.ack, b"+ACK")
    fault("acknowledged")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
