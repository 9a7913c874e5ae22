"""Runs assignments as one Spark job, a task each. The only room between the driver's loop and Spark."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.exits import OperatorError
from receiver import task
from receiver.assignment import Assignment, Destination
from receiver.outcome import Blocked, Cause, Outcome

__all__ = ["cause_of", "run_job", "warm_up"]


def run_job(
    spark: SparkContext, destination: Destination, assignments: Sequence[Assignment]
) -> list[Outcome]:
    """Return the outcome of each assignment, in order; a job that Spark gave up on blocks all of its partitions.

    Raises OperatorError when there is no Spark any more.
    """
    try:
        tasks = spark.parallelize(assignments, len(assignments))
        return tasks.map(partial(task.run, destination=destination)).collect()
    except Py4JJavaError as error:
        cause = cause_of(error)
        return [Blocked(assignment.partition, Cause.SPARK, cause) for assignment in assignments]
    except (Py4JError, OSError) as error:
        raise OperatorError(
            f"Spark's Java process has died ({type(error).__name__}); start again"
        ) from error


def warm_up(spark: SparkContext, slots: int) -> None:
    """Run a job that does nothing: Spark's first one takes a second, its workers then wait with everything imported.

    An error is left for the first real job to find.
    """
    with suppress(Py4JError, OSError):
        spark.parallelize(range(slots), slots).foreach(task.stand_by)


def cause_of(error: Py4JJavaError) -> str:
    """Return the one line that matters of a Java stack trace: the last Python error in it, else its first line."""
    lines = [line.strip() for line in str(error.java_exception).splitlines() if line.strip()]
    named = [
        line for line in lines if not line.startswith(("at ", "File ", "...")) and "Error" in line
    ]
    return (named or lines or ["unknown"])[-1 if named else 0][:300]
