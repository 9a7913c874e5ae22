"""Runs an assignment as a Spark job of one task. The only room between the driver's loop and Spark."""

import errno
from contextlib import suppress
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.app.exits import OperatorError
from receiver.consume import task
from receiver.consume.assignment import Assignment, Destination
from receiver.consume.outcome import Blocked, Cause, Done, Report

__all__ = ["cause_of", "run_job", "warm_up"]

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}
"""What a disk refuses with; a JVM that has died leaves connections behind, and these end otherwise."""


def run_job(spark: SparkContext, destination: Destination, assignment: Assignment) -> Report:
    """Return the report of a stay; a job that Spark gave up on blocks its partition, or one whose scratch file has no room.

    Raises OperatorError when there is no Spark any more.
    """
    try:
        stays = spark.parallelize([assignment], 1)
        return stays.map(partial(task.run, destination=destination)).collect()[0]
    except Py4JJavaError as error:
        return _blocked(assignment, Cause.SPARK, cause_of(error))
    except (Py4JError, OSError) as error:
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            # the file has another name each time; what stays the same is said once
            place = Path(error.filename).parent if error.filename else "Spark's scratch folder"
            return _blocked(assignment, Cause.DISK, f"{place}: {error.strerror}")
        raise OperatorError(
            f"Spark's Java process has died ({type(error).__name__}); start again"
        ) from error


def _blocked(assignment: Assignment, cause: Cause, detail: str) -> Report:
    partition, first = assignment.partition, assignment.first
    return Report(Done(partition, first, first), 0, Blocked(partition, cause, detail))


def warm_up(spark: SparkContext, partitions: int) -> None:
    """Run a job that does nothing: Spark's first one takes a second, its workers then wait with everything imported.

    An error is left for the first real job to find.
    """
    with suppress(Py4JError, OSError):
        slots = min(partitions, spark.defaultParallelism)
        spark.parallelize(range(slots), slots).foreach(task.stand_by)


def cause_of(error: Py4JJavaError) -> str:
    """Return the one line that matters of a Java stack trace: the last Python error in it, else its first line."""
    lines = [line.strip() for line in str(error.java_exception).splitlines() if line.strip()]
    named = [
        line for line in lines if not line.startswith(("at ", "File ", "...")) and "Error" in line
    ]
    return (named or lines or ["unknown"])[-1 if named else 0][:300]
