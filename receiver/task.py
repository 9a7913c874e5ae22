"""What a Spark task does with an assignment: lock, check, undo, fetch, write, sync; and an outcome as a value.

It never raises for what an operator can run into; an exception here is a defect, and Spark's retry is safe since every
attempt first undoes what is not committed.
"""

import time
from contextlib import suppress

from broker import bucket
from broker.connection import ConnectionLost, Rejected
from broker.offset import Offset, UnreadableOffset
from broker.topology import OFFSETS_BUCKET, offset_key
from receiver.assignment import Assignment, Destination, Turn
from receiver.faults import fault
from receiver.outcome import Blocked, Cause, Done, Outcome, Superseded
from receiver.reading import background
from receiver.reading.fetch import read
from receiver.writing import journal, upkeep
from receiver.writing.batch import Batch
from receiver.writing.calendar import Calendar
from receiver.writing.files import Damaged, Output
from receiver.writing.folders import make_folder
from receiver.writing.gaps import DamagedGaps
from receiver.writing.journal import DamagedJournal, Verdict
from receiver.writing.lengths import Lengths
from receiver.writing.lock import Locked, partition_lock
from receiver.writing.logbook import Logbook
from receiver.writing.spanbook import DamagedSpans, SpanBook
from receiver.writing.turning import lives_of, turn
from receiver.zones import named_zone

__all__ = ["run", "stand_by"]

_LOCK_PATIENCE = 20.0
_KV_PATIENCE = 10.0


def run(assignment: Assignment, destination: Destination) -> Outcome:
    """Do one batch of one partition and tell how it ended."""
    try:
        make_folder(destination.output, destination.permissions)
        make_folder(destination.state)
        with partition_lock(destination.state / f"p{assignment.partition}.lock", _LOCK_PATIENCE):
            return _locked(assignment, destination)
    except Locked as error:
        return Blocked(assignment.partition, Cause.LOCKED, str(error))
    except (ConnectionLost, Rejected, TimeoutError) as error:
        return Blocked(assignment.partition, Cause.BROKER, str(error) or type(error).__name__)
    except OSError as error:
        return Blocked(assignment.partition, Cause.DISK, _describe(error))
    except (Damaged, DamagedJournal, DamagedSpans, DamagedGaps, UnreadableOffset) as error:
        return Blocked(assignment.partition, Cause.STATE, str(error))


def stand_by(slot: int) -> None:
    """Do nothing: that this could be called is all."""


def _locked(assignment: Assignment, destination: Destination) -> Outcome:
    offset = _ask(assignment, destination)
    if objection := _object(assignment, offset):
        return objection
    path = destination.state / f"p{assignment.partition}"
    with (
        Logbook(path.with_suffix(".journal")) as logbook,
        Lengths(path.with_suffix(".lengths")) as lengths,
        Output(
            destination.output,
            destination.rotate_size,
            _calendar(destination),
            lengths,
            destination.permissions,
        ) as output,
    ):
        lineage = offset.lineage if offset else ()
        match journal.decide(logbook.last, assignment.first, assignment.epoch, lineage):
            case Verdict.NEWER | Verdict.FOREIGN:
                # not even NEWER makes us a zombie: KV, asked under the lock, says that we own the partition
                return Blocked(
                    assignment.partition, Cause.STATE, _foreign(assignment, destination, logbook)
                )
            case Verdict.UNDO:
                images = logbook.last.images if logbook.last else ()
                upkeep.undo(images, output, destination.state, assignment.partition)
                fault("undone")
            case Verdict.CLEAN:
                upkeep.tend(destination.state, destination.output, assignment.partition)
        if assignment.turn is not Turn.NONE:
            return _turn(assignment, destination, logbook, output)
        spans = SpanBook(path.with_suffix(".spans"))
        return _write(
            assignment, destination, Batch(assignment, destination, logbook, output, spans), output
        )


def _write(assignment: Assignment, destination: Destination, batch: Batch, output: Output) -> Done:
    try:
        for chunk in read(
            background.connection(destination.servers, destination.access), assignment
        ):
            fault("fetched")
            batch.write(chunk)
            fault("appended")
        return batch.finish()
    except OSError:
        with suppress(OSError, Damaged):  # the journal still says what is to be undone
            batch.undo()
        raise


def _turn(
    assignment: Assignment, destination: Destination, logbook: Logbook, output: Output
) -> Done:
    begin = output.calendar.period(time.time_ns()).begin
    closed = turn(
        logbook,
        output,
        lives_of(destination.output, assignment.partition),
        (assignment.epoch, assignment.first),
        lambda moment: assignment.turn is Turn.ALL or moment < begin,
    )
    first = assignment.first
    return Done(assignment.partition, first, first, closed=closed, notices=tuple(output.notices))


def _ask(assignment: Assignment, destination: Destination) -> Offset | None:
    connection = background.connection(destination.servers, destination.access)
    entry = background.wait(
        bucket.read(connection, OFFSETS_BUCKET, offset_key(assignment.partition)), _KV_PATIENCE
    )
    return Offset.decode(entry.value) if entry else None


def _object(assignment: Assignment, offset: Offset | None) -> Outcome | None:
    if offset is not None and offset.epoch < assignment.epoch:
        return Blocked(
            assignment.partition,
            Cause.STATE,
            f"the offset is of epoch {offset.epoch}, before ours ({assignment.epoch}): it was restored, "
            "or a replica of the broker is behind",
        )
    if offset is None or offset.epoch != assignment.epoch:
        owner = offset.owner if offset else "nobody"
        return Superseded(assignment.partition, f"the partition belongs to {owner} by now")
    if offset.next != assignment.first:
        return Blocked(
            assignment.partition,
            Cause.STATE,
            f"the offset is {offset.next}, not {assignment.first}: somebody has moved it",
        )
    return None


def _calendar(destination: Destination) -> Calendar:
    return Calendar(destination.rotate_every, named_zone(destination.time_zone))


def _foreign(assignment: Assignment, destination: Destination, logbook: Logbook) -> str:
    last = logbook.last
    reached = (last.until or last.first) if last else 0
    return (
        f"the files under {destination.output} were written up to sequence {reached}, but the offset of partition "
        f"{assignment.partition} is {assignment.first}: they do not belong together; bring back the right files, or "
        f"`logreceiver offsets set --partition {assignment.partition} --to {reached}` goes on behind these"
    )


def _describe(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"
