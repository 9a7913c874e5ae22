"""Spark jobs of one task each: what becomes of one, and whether Spark lives."""

import asyncio
import errno
import logging
from contextlib import suppress
from functools import partial
from math import inf

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from nats_logship.app.exits import OperatorError
from receiver.consume import task
from receiver.consume.assignment import Assignment, Blocked, Cause, Destination, Done, Report
from receiver.spark.java import death_of

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}
"""What a disk refuses with; a JVM that has died leaves connections behind, and these end otherwise."""
_DIED = "Spark's Java process has died"
_LOOK = 2.0  # seconds
_NO_EXECUTOR = 20.0  # seconds

logger = logging.getLogger(__name__)


def run_job(spark: SparkContext, destination: Destination, assignment: Assignment) -> Report:
    """Return the report of a task; a job that Spark gave up on blocks its partition, or one whose scratch file has no room.

    Raises OperatorError when there is no Spark any more.
    """
    try:
        tasks = spark.parallelize([assignment], 1)
        return tasks.map(partial(task.run_session, destination=destination)).collect()[0]
    except Py4JJavaError as error:
        blocked = Blocked(Cause.SPARK, _cause_of(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            blocked = Blocked(Cause.DISK, f"Spark's scratch folder: {error.strerror}")
        # pyspark itself fails in many ways where the JVM dies while it reads
        elif isinstance(error, Py4JError | OSError) or death_of(spark._gateway.proc) is not None:  # type: ignore[union-attr]
            raise OperatorError(f"{_DIED} ({type(error).__name__}); start again") from error
        else:
            raise
    return Report(Done(assignment.partition, assignment.first, assignment.first), 0, blocked)


def _cause_of(error: Py4JJavaError) -> str:
    """Return the one line that matters of a Java stack trace: the last Python error in it, else its first line."""
    lines = [line.strip() for line in str(error.java_exception).splitlines() if line.strip()]
    named = [
        line for line in lines if not line.startswith(("at ", "File ", "...")) and "Error" in line
    ]
    return (named or lines or ["unknown"])[-1 if named else 0][:300]


async def watch(spark: SparkContext, patience: float = inf, first: float = 600.0) -> None:
    """Never return; raises OperatorError when the JVM has ended, or there has been no executor for `patience` seconds.

    The first executor may take `first` seconds. A master that has forgotten us gives us none ever again; a new start has it
    know us. Where executors come and go as they are needed, none is no news.
    """
    process = spark._gateway.proc  # type: ignore[union-attr]
    is_dynamic = spark.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    clock = asyncio.get_running_loop().time
    seen, is_told = clock(), False
    while clock() - seen < first:
        if (code := process.poll()) is not None:
            raise OperatorError(f"{_DIED} ({code}); start again")
        if patience == inf or is_dynamic or await asyncio.to_thread(_has_executors, spark):
            seen, first = clock(), patience
        elif clock() - seen >= _NO_EXECUTOR and not is_told:
            is_told = True
            words = "%s gives no executor; waiting: look at its workers, their cores and memory"
            logger.warning(words, spark.master)
        await asyncio.sleep(min(_LOOK, first))
    raise OperatorError(f"{spark.master} has had no executor for us for {first:g} s; start again")


def _has_executors(spark: SparkContext) -> bool:
    with suppress(Py4JError, OSError):
        known = spark._jsc.sc().getExecutorMemoryStatus().size()
        return int(known) > 1  # the driver is one of them
    return False
