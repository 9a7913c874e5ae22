"""What a Spark task does: at each of its partitions it runs a session, in a thread of its own.

A session locks the partition, and writes and commits batches:

    read offset ──▶ recover ──▶ fetch ──▶ write and store a batch ──▶ commit ──┐
                                  ▲                                            │
                                  └──────────── the next batch ────────────────┘

The steps of a batch, and what undoes them, are at the top of `batch`. Whatever an operator can run
into is a value in the report; an exception is a defect of ours. Spark may retry a task at any time:
each attempt begins by reading the offset and undoing what is not committed.

Sessions share the worker's connection, and the end of the task (`task_end`), and nothing else: one
that is blocked, or whose partition is lost, ends alone.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

from nats_logship.app.faults import fault
from nats_logship.app.locks import Locked, exclusive_lock
from nats_logship.client import background
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.stream_reader import Messages
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
    SessionLimits,
    Superseded,
)
from receiver.consume.batch import Batch, BatchFailed, BatchPlan, blame_messages, commit
from receiver.consume.claim import require_same_stream
from receiver.consume.host_claims import HostClaim, Moves, find_claims
from receiver.consume.host_moves import MovesExaminer, MustWait, Patience
from receiver.consume.marked_folders import WrongFolder, check_folder
from receiver.consume.offset_entry import EntryTaken, OffsetEntry
from receiver.consume.partition import OpenPartition, make_partition_folders
from receiver.consume.reader import PartitionReader
from receiver.consume.task_end import TaskEnd
from receiver.consume.wake import Wake
from receiver.storage.damage import Damaged
from receiver.storage.folders import make_synced_folder
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.recovery import WrittenBatch, store_batch

_KV_PATIENCE = 10.0  # seconds
_COMMIT_PATIENCE = 60.0  # seconds; the write of the entry gives up before
_SHORT = 2.0  # seconds for the lock at the end of a task
_SKEW = 5.0  # seconds by which clocks of a cluster may differ
_ANY_TIME = 2**62  # nanoseconds: later than any line

_CAUSES = {WrongFolder: Cause.REACH, Locked: Cause.LOCKED, MustWait: Cause.MOVED}
_BLOCKING = (
    WrongFolder,
    Locked,
    MustWait,
    ConnectionLost,
    Rejected,
    OSError,  # and TimeoutError
    Damaged,
    UnreadableOffset,
)


def run_sessions(assignments: Sequence[Assignment], destination: Destination) -> list[Report]:
    """Run sessions beside each other; return their reports, in the order of the assignments.

    They end together: when the longest of them is over, or soon after the first one has ended.
    """
    end = TaskEnd(max((one.session for one in assignments), key=lambda one: one.longest))
    with ThreadPoolExecutor(len(assignments), "session") as threads:
        running = [threads.submit(run_session, one, destination, end) for one in assignments]
        for session in running:
            session.add_done_callback(partial(_hasten, end))
    return [_report(one, session) for one, session in zip(assignments, running, strict=True)]


def _hasten(end: TaskEnd, session: Future[Report]) -> None:
    if session.exception() or session.result().outcome is not Ending.SILENCE or end.waits:
        end.hasten()


def _report(assignment: Assignment, session: Future[Report]) -> Report:
    """Return a session's report; a defect of ours blocks its partition only."""
    if (error := session.exception()) is None:
        return session.result()
    return Report(assignment.nothing, 0, Blocked(Cause.SPARK, f"{type(error).__name__}: {error}"))


def run_session(
    assignment: Assignment, destination: Destination, end: TaskEnd | None = None
) -> Report:
    """Run a session at a partition; return what was committed, and how the session ended."""
    session = _Session(assignment, destination, end or TaskEnd(assignment.session))
    outcome = session.run()
    fault("reported")
    return Report(session.done, session.batches, outcome, session.seconds)


class _Session:
    """Writes and commits batch after batch, under the partition's lock."""

    def __init__(self, assignment: Assignment, destination: Destination, end: TaskEnd) -> None:
        """Begin with nothing committed."""
        self._assignment = assignment
        self._destination = destination
        self._end = end
        self._connection = background.connection(destination.servers, destination.access)
        self._entry = OffsetEntry(self._connection, assignment.partition, _now)
        self._plan = BatchPlan()
        self._stream_end = 0  # when the attempt began; 0 until its first batch
        self.done = assignment.nothing
        self.batches = 0
        self.seconds = 0.0

    def run(self) -> Ending | Blocked | Superseded:
        """Run the session; return how it ended, also if an operator has to act."""
        destination = self._destination
        try:
            self._check_folders()
            make_synced_folder(destination.output, destination.permissions)
            make_synced_folder(destination.state)
            lock = destination.state / f"p{self.done.partition}.lock"
            with exclusive_lock(lock, self._lock_patience):
                return self._run_locked()
        except EntryTaken as taken:
            return _explain_loss(self._assignment, taken.found)
        except _BLOCKING as error:
            folders = make_partition_folders(destination, self._assignment.partition)
            return _explain_error(error, folders)

    @property
    def _lock_patience(self) -> float:
        """For how long to wait for the lock: the reports of other sessions wait for ours."""
        most = self._assignment.session.lock
        return min(most, max(self._end.seconds_left, _SHORT)) if self._end.waits else most

    def _check_folders(self) -> None:
        for one in self._destination.folders:
            check_folder(one)

    def _run_locked(self) -> Ending | Blocked | Superseded:
        """Attempt it until no batch fails unexpectedly: each failure narrows the poison down."""
        while True:
            try:
                return self._attempt()
            except BatchFailed as failed:
                if self._plan.poison:
                    raise
                self._plan = failed.plan

    def _attempt(self) -> Ending | Blocked | Superseded:
        """Read the offset, undo what is not committed, and write batches."""
        assignment, self._stream_end = self._assignment, 0
        offset = background.wait(self._entry.read(assignment.epoch, assignment.first), _KV_PATIENCE)
        if offset is None or offset.epoch > assignment.epoch:
            return _explain_loss(assignment, offset)
        if objection := _find_objection(assignment, offset):
            return objection
        if not self.batches:
            self.done = replace(self.done, first=offset.next, until=offset.next)
        with closing(OpenPartition(assignment, self._destination, offset)) as partition:
            if partition.has_uncommitted:
                # the commit of a task that died may still be on its way: it must fail from now on
                background.wait(self._entry.fence(), _COMMIT_PATIENCE)
                fault("fenced")
            self._add_notices(partition.recover())
            partition.spans.forget_old(time.time_ns())
            if assignment.rotation is not ForcedRotation.NONE:
                self._settle(partition, offset)
                return self._close_files(partition)
            return self._receive(partition, offset)

    def _receive(self, partition: OpenPartition, offset: Offset) -> Ending:
        assignment, end = self._assignment, self._end
        with self._make_reader(offset, assignment) as reader:
            while (done := self._write_batch(partition, reader, offset)) is not None:
                self._commit(done)
                self._add_notices(partition.settle_surplus(done.until, self._stream_end))
                end.note_activity()
                if self.done.has_news:
                    end.report_soon()
                if not assignment.session.longest:
                    return Ending.TIME
                if end.is_over:
                    return end.reason
            ending = end.reason if reader.waits or end.is_asked else Ending.SILENCE
        if ending is Ending.SILENCE:
            self._cut_surplus(partition, offset)
        return ending

    def _cut_surplus(self, partition: OpenPartition, offset: Offset) -> None:
        """Cut what nothing fills, if the stream has no message left.

        That none came does not prove it: the broker may deliver to the request of a receiver that
        was killed, until it notices that, and a server that lags has none to deliver.
        """
        if not partition.has_surplus:
            return
        number, epoch = self._assignment.partition, self._assignment.epoch
        wake = Wake(self._connection, number, offset.stream, epoch)
        if background.wait(wake.is_drained(self.done.until), _COMMIT_PATIENCE):
            self._add_notices(partition.cut_surplus())

    def _make_reader(self, offset: Offset, assignment: Assignment) -> PartitionReader:
        return PartitionReader(self._connection, assignment, offset.next, offset.stream, self._end)

    def _write_batch(
        self, partition: OpenPartition, reader: PartitionReader, offset: Offset
    ) -> Done | None:
        """Do steps 1 to 4 of the next batch; None if nothing has come until the task ends."""
        pulls = reader.pull_batch()
        if (first := next(pulls, None)) is None:
            return None
        began = time.monotonic()
        if not self._stream_end:  # later batches prove it by the consumer of that stream
            check = require_same_stream(self._connection, offset, self._assignment.partition)
            self._stream_end = background.wait(check, _KV_PATIENCE)
        self._check_folders()  # the batch opens files there: from now on the disk is busy
        moves = Moves()
        if not self._plan.poison:
            tried = first[: self._plan.most or None]
            with blame_messages(lambda: len(tried) // 2):
                moves = self._take_over_hosts(partition, tried, offset)
        assignment = replace(self._assignment, first=self.done.until)
        with partition.open_output() as output:
            batch = Batch(assignment, partition, output, moves, self._plan)
            try:
                done = _write_messages(batch, chain([first], pulls), reader)
            finally:  # what was done to files stays so, also if the batch is undone
                self._add_notices(output.collect_notices())
        self.seconds += time.monotonic() - began
        return done

    def _take_over_hosts(self, partition: OpenPartition, first: Messages, offset: Offset) -> Moves:
        """Take over the files of hosts that move here by claims in a batch's first messages.

        Raises `MustWait` if the first message is a claim that has to wait.
        """
        if not (claims := list(find_claims(first))):
            return Moves()
        moves = background.wait(self._examine(claims, offset.stream), _COMMIT_PATIENCE)
        if moves.reason and moves.until == first[0][0].sequence:
            raise MustWait(moves.reason)
        for host, received in moves.received.items():
            partition.take_over(host, received.values())
        return moves

    async def _examine(self, claims: Iterable[HostClaim], stream: str) -> Moves:
        destination, client = self._destination, await self._connection.client()
        skew = _SKEW if client.is_clustered else 0.0  # one server has one clock
        examiner = MovesExaminer(
            connection=self._connection,
            partition=self._assignment.partition,
            stream=stream,
            layout=StreamLayout(destination.partitions, destination.streams),
            patience=Patience(skew, self._assignment.session.stalled_after),
        )
        return await examiner.examine(claims)

    def _add_notices(self, notices: Iterable[str]) -> None:
        self.done = replace(self.done, notices=(*self.done.notices, *notices))

    def _commit(self, done: Done) -> None:
        """Do steps 5 and 6 of a batch, and count it."""
        began = time.monotonic()
        background.wait(commit(self._entry, self._connection, done), _COMMIT_PATIENCE)
        self.done = self.done.then(done)
        if self._plan.poison:
            self._plan = BatchPlan()
        self.batches += 1
        self.seconds += time.monotonic() - began

    def _settle(self, partition: OpenPartition, offset: Offset) -> None:
        """Receive again what live files have behind their committed lengths, to close them then.

        Files whose rest does not come, or not before the driver asks for the end, stay open.
        """
        if not partition.has_surplus:
            return
        with self._make_reader(
            offset, replace(self._assignment, session=SessionLimits())
        ) as reader:
            while partition.has_surplus:
                done = self._write_batch(partition, reader, offset)
                if done is None:
                    break
                self._commit(done)
                self._add_notices(partition.settle_surplus(done.until, self._stream_end))
        if not self._end.is_asked:
            self._cut_surplus(partition, offset)

    def _close_files(self, partition: OpenPartition) -> Ending:
        """Close live files in a batch without messages: all, or those whose period is over."""
        self._check_folders()
        now = time.time_ns()
        is_all = self._assignment.rotation is ForcedRotation.ALL
        before = _ANY_TIME if is_all else partition.calendar.period(now).begin
        with partition.open_output() as output:
            if partition.layout.has_date:
                output.close_days(partition.days.date(now))
            partition.close_files(output, before)
            output.sync()
            batch = partition.describe_batch(self.done.until, self.done.until)
            store_batch(partition.store, batch, WrittenBatch(output.rows({}), partition.spans))
            fault("files_closed")
            self.done = replace(self.done, closed=(*self.done.closed, *output.closed))
            self._add_notices(output.collect_notices())
        return Ending.SILENCE


def _write_messages(batch: Batch, pulls: Iterator[Messages], reader: PartitionReader) -> Done:
    """Write a batch to its end; messages that it does not take begin the next one."""
    fault("fetched")
    for number, messages in enumerate(pulls):
        before = batch.lines
        count = batch.write(messages)
        reader.note_lines(batch.lines - before)
        if number == 0:
            fault("appended")
        if batch.is_full:  # also if the last message of a pull has filled it
            reader.end_batch(messages[count:])
    return batch.finish()


def _find_objection(assignment: Assignment, offset: Offset) -> Blocked | None:
    epoch, first = assignment.epoch, assignment.first
    if (offset.epoch, offset.next) >= (epoch, first):
        return None
    return Blocked(
        Cause.STATE,
        f"the offset is {offset.next} in epoch {offset.epoch}, but {first} was committed in epoch "
        f"{epoch}: somebody has moved it back, it was restored, or a replica of the broker is "
        "behind; if this lasts, start the receiver again",
    )


def _explain_error(error: Exception, folders: PartitionFolders) -> Blocked:
    """Return why a session is blocked by an error that an operator can run into."""
    cause, detail = Cause.STATE, str(error)
    match error:
        case WrongFolder() | Locked() | MustWait():
            cause = _CAUSES[type(error)]
        case Rejected():
            cause, detail = Cause.BROKER, f"the broker refuses: {error}; {error.remedy}"
        case ConnectionLost() | TimeoutError():
            cause, detail = Cause.BROKER, detail or type(error).__name__
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            cause, detail = Cause.DISK, f"{name}{error.strerror or error}"
        case Damaged():
            detail = str(folders.advise(error))
        case _:
            pass
    return Blocked(cause, detail)


def _explain_loss(assignment: Assignment, found: Offset | None) -> Blocked | Superseded:
    """Return why the entry, which is `found` now, is not this task's."""
    if found is None:
        return Blocked(Cause.STATE, "its offset is gone")
    if found.epoch == assignment.epoch:
        return Blocked(Cause.LOCKED, "another attempt of the same task is at work there")
    successor = "" if found.is_moved else found.owner
    return Superseded(f"it belongs to {found.owner} by now", successor)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
