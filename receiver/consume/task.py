"""What a Spark task does with an assignment: takes the partition's lock, stays there, and reports as a value.

It never raises for what an operator can run into; an exception here is a defect, and Spark's retry is safe since every
attempt forgets what was before, asks KV, and first undoes what is not committed.
"""

from broker.app.faults import fault
from broker.client.connection import ConnectionLost, Rejected
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.outcome import Blocked, Cause, Ending, Report, Superseded
from receiver.consume.place import Elsewhere, look
from receiver.consume.stay import CONTRADICTIONS, Stay
from receiver.storage.folders import make_folder
from receiver.storage.lock import Locked, partition_lock

__all__ = ["run", "stand_by"]

_LOCK_PATIENCE = 20.0  # seconds


def run(assignment: Assignment, destination: Destination) -> Report:
    """Stay at a partition and tell what was committed there, and how it ended."""
    stay = Stay(assignment, destination)
    ended = _ended(stay, assignment, destination)
    fault("reported")
    return Report(stay.done, stay.batches, ended, stay.seconds)


def stand_by(slot: int) -> None:
    """Do nothing: that this could be called is all."""


def _ended(
    stay: Stay, assignment: Assignment, destination: Destination
) -> Ending | Blocked | Superseded:
    partition = assignment.partition
    try:
        for place in destination.places:
            look(place)
        make_folder(destination.output, destination.permissions)
        make_folder(destination.state)
        with partition_lock(destination.state / f"p{partition}.lock", _LOCK_PATIENCE):
            return stay.run()
    except Elsewhere as error:
        return Blocked(partition, Cause.REACH, str(error))
    except Locked as error:
        return Blocked(partition, Cause.LOCKED, str(error))
    except (ConnectionLost, Rejected, TimeoutError) as error:
        return Blocked(partition, Cause.BROKER, _words(error))
    except OSError as error:
        return Blocked(partition, Cause.DISK, _describe(error))
    except CONTRADICTIONS as error:
        return Blocked(partition, Cause.STATE, str(error))


def _words(error: ConnectionLost | Rejected | TimeoutError) -> str:
    if isinstance(error, Rejected):
        return f"the broker refuses: {error}; run `logbroker apply`"
    return str(error) or type(error).__name__


def _describe(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}"
