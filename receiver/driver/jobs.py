"""Spark jobs of one task each, and whether Spark still works."""

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from math import inf

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from nats_logship.app.exits import OperatorError
from nats_logship.app.text import flatten_error
from receiver.consume import task
from receiver.consume.assignment import Assignment, Blocked, Cause, Destination, Report
from receiver.driver.stopping import run_unless_stopped
from receiver.spark.jvm import Jvm, wait_for_death
from receiver.spark.session import count_tasks

_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}
"""Errors of a disk; the connections of a JVM that has died end with others."""
_DIED = "Spark's Java process has died"
_CHECK_EVERY = 2.0  # seconds
_NO_EXECUTOR = 20.0  # seconds
_LONGEST = 300  # characters of a reason

logger = logging.getLogger(__name__)


async def start_spark(
    starting: AbstractContextManager[SparkContext], stack: ExitStack, jvm: Jvm, stop: asyncio.Event
) -> SparkContext | None:
    """Return Spark, which takes seconds to start; None on a stop, which ends its JVM.

    `stack` ends Spark. Raises as `spark_context`.
    """
    work = asyncio.ensure_future(asyncio.to_thread(stack.enter_context, starting))
    spark = await run_unless_stopped(stop, asyncio.shield(work))
    if spark is None:
        jvm.process.kill()
        with suppress(OperatorError, Py4JError):
            await work
    return spark


def run_job(
    spark: SparkContext, destination: Destination, assignments: Sequence[Assignment]
) -> list[Report]:
    """Run a task as a Spark job, and return its reports.

    All partitions are blocked if Spark gives up on the job, or its scratch folder takes no data.
    Raises OperatorError if the JVM has died.
    """
    try:
        tasks = spark.parallelize([assignments], 1)
        return tasks.map(partial(task.run_sessions, destination=destination)).collect()[0]
    except Py4JJavaError as error:
        blocked = Blocked(Cause.SPARK, find_reason(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _REFUSALS:
            blocked = Blocked(Cause.DISK, f"Spark's scratch folder: {error.strerror}")
        # pyspark itself raises any error if the JVM dies while it reads
        elif isinstance(error, Py4JError | OSError) or has_died(spark):
            raise OperatorError(f"{_DIED} ({type(error).__name__}); start again") from error
        else:
            raise
    return [Report(one.nothing, 0, blocked) for one in assignments]


def has_died(spark: SparkContext) -> bool:
    """Whether Spark's JVM has ended."""
    return wait_for_death(spark._gateway.proc) is not None  # type: ignore[union-attr]


def find_reason(error: Py4JJavaError) -> str:
    """Return the last Python error in the Java stack trace of a job, else its first line."""
    lines = [line.strip() for line in str(error.java_exception).splitlines() if line.strip()]
    named = [
        line for line in lines if not line.startswith(("at ", "File ", "...")) and "Error" in line
    ]
    return flatten_error((named or lines or ["unknown"])[-1 if named else 0], _LONGEST)


async def watch(spark: SparkContext, patience: float = inf, first: float = 600.0) -> None:
    """Never return; raise OperatorError if the JVM has ended, or the cluster gives no executor.

    `patience` is for how many seconds there may be no executor, `first` for the first one. A master
    that was restarted does not know us, and gives none ever again; a new start registers us. With
    dynamic allocation having no executor is normal.
    """
    process = spark._gateway.proc  # type: ignore[union-attr]
    is_dynamic = spark.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    clock = asyncio.get_running_loop().time
    seen, is_logged = clock(), False
    while clock() - seen < first:
        if (code := process.poll()) is not None:
            raise OperatorError(f"{_DIED} ({code}); start again")
        if patience == inf or is_dynamic or await asyncio.to_thread(_has_executors, spark):
            seen, first = clock(), patience
        elif clock() - seen >= _NO_EXECUTOR and not is_logged:
            is_logged = True
            logger.warning(
                "%s gives no executor; waiting: check its workers, their cores and memory",
                spark.master,
            )
        await asyncio.sleep(min(_CHECK_EVERY, first))
    raise OperatorError(f"{spark.master} has had no executor for us for {first:g} s; start again")


async def follow_slots(spark: SparkContext, use_slots: Callable[[int], None]) -> None:
    """Report how many tasks Spark runs at once, as executors come and go; never return.

    While there is no executor the last number stays.
    """
    while True:
        await asyncio.sleep(_CHECK_EVERY)
        if count := await asyncio.to_thread(count_tasks, spark):
            use_slots(count)


def _has_executors(spark: SparkContext) -> bool:
    with suppress(Py4JError, OSError):
        known = spark._jsc.sc().getExecutorMemoryStatus().size()
        return int(known) > 1  # the driver is one of them
    return False
