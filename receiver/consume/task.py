"""What a Spark task does with an assignment: takes the partition's lock, runs a session there, and reports as a value.

    claim ──▶ fetch ──▶ batch ──▶ files ──▶ store ──▶ claim ──▶ acknowledgement ──┐
                ▲                                                                 │
                └────────────────── the next batch, from there ───────────────────┘

What a batch has written counts from the moment its entry in KV has moved, and is undone by whoever comes next if it has
not. A task never raises for what an operator can run into; an exception here is a defect, and Spark's retry is safe since
every attempt forgets what was before, asks KV, and first undoes what is not committed.
"""

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from nats_logship.app.faults import fault
from nats_logship.app.locks import Locked, exclusive_lock
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import StreamLayout
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
from receiver.consume.batch import Batch, OpenPartition
from receiver.consume.claim import EntryTaken, OffsetEntry
from receiver.consume.fetch import Messages, PartitionReader
from receiver.consume.host_moves import (
    HostClaim,
    Moves,
    MovesExaminer,
    MustWait,
    Patience,
    claims_in,
)
from receiver.consume.marked_folders import WrongFolder, check_folder
from receiver.consume.poison import BatchFailed, Suspicion, blaming
from receiver.consume.stream_check import require_same_stream
from receiver.storage.commit import WrittenBatch, store_batch
from receiver.storage.damage import Damaged
from receiver.storage.folders import make_synced_folder
from receiver.storage.output import Output

_KV_PATIENCE = 10.0  # seconds
_MOVE_PATIENCE = 60.0  # seconds; the entry itself gives up before
_SKEW = 5.0  # seconds by which clocks of a cluster may differ

_CAUSES = {WrongFolder: Cause.REACH, Locked: Cause.LOCKED, MustWait: Cause.MOVED}


def run_session(assignment: Assignment, destination: Destination) -> Report:
    """Run a session at a partition and tell what was committed there, and how it ended."""
    session = _Session(assignment, destination)
    outcome = session.run()
    fault("reported")
    return Report(session.done, session.batches, outcome, session.seconds)


def _objection(assignment: Assignment, offset: Offset) -> Blocked | None:
    epoch, first = assignment.epoch, assignment.first
    if (offset.epoch, offset.next) >= (epoch, first):
        return None
    return Blocked(
        Cause.STATE,
        f"the offset is {offset.next} in epoch {offset.epoch}, but {first} was committed in epoch {epoch}: somebody has moved "
        "it back, it was restored, or a replica of the broker is behind; if this lasts, start it again",
    )


def _lost(assignment: Assignment, found: Offset | None) -> Blocked | Superseded:
    if found is not None and found.epoch == assignment.epoch:
        return Blocked(Cause.LOCKED, "another attempt of the same task is at work there")
    if found is None:
        return Blocked(Cause.STATE, "its offset is gone")
    successor = "" if found.is_moved else found.owner
    return Superseded(f"it belongs to {found.owner} by now", successor)


class _Session:
    """Batch after batch is fetched, written, committed and acknowledged, under the partition's lock."""

    def __init__(self, assignment: Assignment, destination: Destination) -> None:
        """Begin with nothing committed."""
        self._assignment = assignment
        self._destination = destination
        self._connection = background.connection(destination.servers, destination.access)
        self._entry = OffsetEntry(self._connection, assignment.partition, _now)
        self._began = time.monotonic()
        # partitions that began together do not go on together, since entering is dear
        self._longest = assignment.session.longest * random.uniform(0.75, 1)
        self.done = Done(assignment.partition, assignment.first, assignment.first)
        self.batches = 0
        self.seconds = 0.0
        self._suspicion = Suspicion()

    def run(self) -> Ending | Blocked | Superseded:
        """Run the session; return how it ended, whatever an operator can run into."""
        destination = self._destination
        try:
            self._look()
            make_synced_folder(destination.output, destination.permissions)
            make_synced_folder(destination.state)
            lock = destination.state / f"p{self.done.partition}.lock"
            with exclusive_lock(lock, self._assignment.session.lock):
                return self._locked()
        except EntryTaken as taken:
            return _lost(self._assignment, taken.found)
        except (WrongFolder, Locked, MustWait) as error:
            return Blocked(_CAUSES[type(error)], str(error))
        except (ConnectionLost, Rejected, TimeoutError) as error:
            words = str(error) or type(error).__name__
            if isinstance(error, Rejected):
                words = f"the broker refuses: {error}; {error.remedy}"
            return Blocked(Cause.BROKER, words)
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            return Blocked(Cause.DISK, f"{name}{error.strerror or error}")
        except (Damaged, UnreadableOffset) as error:
            if isinstance(error, Damaged):
                error = error.with_folders(destination.output, destination.state)
            return Blocked(Cause.STATE, str(error))

    def _look(self) -> None:
        for one in self._destination.folders:
            check_folder(one)

    def _locked(self) -> Ending | Blocked | Superseded:
        """Attempt it until no batch fails by an unforeseen error, setting such messages aside."""
        while True:
            try:
                return self._attempt()
            except BatchFailed as failed:
                if self._suspicion.reason:
                    raise
                self._suspicion = failed.suspicion

    def _attempt(self) -> Ending | Blocked | Superseded:
        """Ask KV where the partition goes on, recover, and go on as long as there is a reason to."""
        assignment = self._assignment
        offset = background.wait(self._entry.read(assignment.epoch, assignment.first), _KV_PATIENCE)
        if offset is None or offset.epoch > assignment.epoch:
            return _lost(assignment, offset)
        if objection := _objection(assignment, offset):
            return objection
        if not self.batches:
            self.done = Done(assignment.partition, offset.next, offset.next)
        with closing(OpenPartition(assignment, self._destination, offset)) as partition:
            if partition.has_stored:
                # who wrote it may have died with its move sent: it must not arrive when it is undone
                background.wait(self._entry.fence(), _MOVE_PATIENCE)
                fault("fenced")
            notices = partition.recover()  # before anything is added
            self.done = replace(self.done, notices=(*self.done.notices, *notices))
            partition.spans.forget_old(time.time_ns())
            if assignment.rotation is not ForcedRotation.NONE:
                return self._close_files(partition)
            return self._receive(partition, offset)

    def _receive(self, partition: OpenPartition, offset: Offset) -> Ending:
        silence, left = self._assignment.session.silence, self._longest
        with PartitionReader(
            self._connection, self._assignment, offset.next, offset.stream
        ) as reading:
            while True:
                done = self._batch(partition, reading, min(silence, left), offset)
                if done is None:
                    return Ending.ASKED if reading.is_wanted_elsewhere else Ending.SILENCE
                self._commit(done)
                if reading.is_wanted_elsewhere:
                    return Ending.ASKED
                left = self._left()
                if left <= 0:
                    return Ending.TIME

    def _left(self) -> float:
        most = self._assignment.session.report_within if self.done.has_news else self._longest
        return self._began + min(self._longest, most) - time.monotonic()

    def _batch(
        self, partition: OpenPartition, reading: PartitionReader, wait: float, offset: Offset
    ) -> Done | None:
        """Write the next batch; None when nothing came in time."""
        pulls = reading.pull_batch(wait)
        if (first := next(pulls, None)) is None:
            return None
        began = time.monotonic()
        if not self.batches:  # another stream would have no consumer that we could go on with
            held = require_same_stream(self._connection, offset, self._assignment.partition)
            background.wait(held, _KV_PATIENCE)
        self._look()  # from now on its disk cannot be unmounted
        moves = Moves()
        if not self._suspicion.reason:
            tried = first[: self._suspicion.most or None]
            with blaming(lambda: len(tried) // 2):
                moves = self._take_over(partition, tried, offset)
        begin = replace(self._assignment, first=self.done.until)
        with partition.writing() as output:
            batch = Batch(begin, partition, output, moves, self._suspicion)
            try:
                done = _written(batch, chain([first], pulls), reading)
            except OSError:  # the next session takes it back
                self._told(output)
                raise
        self.seconds += time.monotonic() - began
        return done

    def _take_over(self, partition: OpenPartition, first: Messages, offset: Offset) -> Moves:
        """Take over the files of hosts that go on here by claims in a batch's first messages.

        Raises `MustWait` if the first message is a claim that has to wait.
        """
        if not (claims := list(claims_in(first))):
            return Moves()
        moves = background.wait(self._examine(claims, offset.stream), _MOVE_PATIENCE)
        if moves.reason and moves.until == first[0][0].sequence:
            raise MustWait(moves.reason)
        for host, received in moves.received.items():
            partition.take_over(host, received.values())
        news = tuple(one for one in moves.notices if one not in self.done.notices)
        self.done = replace(self.done, notices=(*self.done.notices, *news))
        return moves

    async def _examine(self, claims: Iterable[HostClaim], stream: str) -> Moves:
        destination, client = self._destination, await self._connection.client()
        skew = _SKEW if client.is_clustered else 0.0  # one server has one clock
        patience = Patience(skew, self._assignment.session.stalled_after)
        layout = StreamLayout(destination.partitions, destination.streams)
        number = self._assignment.partition
        return await MovesExaminer(self._connection, number, stream, layout, patience).examine(
            claims
        )

    def _told(self, output: Output) -> None:
        self.done = replace(self.done, notices=(*self.done.notices, *output.collect_notices()))

    def _commit(self, done: Done) -> None:
        began = time.monotonic()
        background.wait(self._moved(done), _MOVE_PATIENCE)
        self.done = self.done.then(done)
        if self._suspicion.reason:
            self._suspicion = Suspicion()
        self.batches += 1
        self.seconds += time.monotonic() - began

    async def _moved(self, done: Done) -> None:
        await self._entry.move(done)
        fault("committed")
        with suppress(ConnectionLost):  # that's fine: the next acknowledgement covers this one
            await self._connection.publish(done.ack, b"+ACK")
        fault("acknowledged")

    def _close_files(self, partition: OpenPartition) -> Ending:
        """Close live files though no line comes: all that have lines, or those whose period is over."""
        self._look()
        now = time.time_ns()
        is_all = self._assignment.rotation is ForcedRotation.ALL
        since = 2**62 if is_all else partition.calendar.period(now).begin
        with partition.writing() as output:
            if partition.layout.has_date:
                output.close_days(partition.days.date(now))
            partition.close_files(output, since)
            output.sync()
            batch = partition.next_batch(self.done.until, self.done.until)
            store_batch(partition.store, batch, WrittenBatch(output.rows({}), partition.spans))
            fault("files_closed")
            self.done = replace(self.done, closed=tuple(output.closed))
            self._told(output)
        return Ending.SILENCE


def _written(batch: Batch, pulls: Iterator[Messages], reading: PartitionReader) -> Done:
    """Write a batch to its end; what it has no room for comes first in the next one."""
    fault("fetched")
    for number, messages in enumerate(pulls):
        count = batch.write(messages)
        if number == 0:
            fault("appended")
        if batch.is_full:  # also where they end with the message that filled it
            reading.end_batch(messages[count:])
    return batch.finish()


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
