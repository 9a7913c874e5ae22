"""Jobs that Spark cannot even begin: whose scratch file has no room, whose JVM has gone."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark import SparkContext

from broker.app.exits import OperatorError
from receiver.consume.assignment import Assignment, Blocked, Cause, Destination, Report
from receiver.driver.jobs import run_job, watch


class Context(SparkContext):
    """A context whose every job needs a file that cannot be had."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def parallelize(self, *_: Any, **__: Any) -> Any:
        raise self._error


def report_after(error: int) -> Report:
    context = Context(OSError(error, os.strerror(error), "scratch/tmp1"))
    return run_job(context, Destination(Path("out"), Path("state"), 0, ()), Assignment(3, 7, 1, 1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_a_jobs_scratch_file_blocks_its_partition_and_ends_nothing(
    number: int,
) -> None:
    report = report_after(number)

    assert report.ended == Blocked(Cause.DISK, f"Spark's scratch folder: {os.strerror(number)}")
    assert (report.done.first, report.done.until) == (7, 7)


def test_a_jvm_that_has_died_ends_the_receiver() -> None:
    with pytest.raises(OperatorError, match="Java process has died"):
        report_after(errno.ECONNREFUSED)


def test_a_cluster_without_executors_for_long_ends_the_receiver() -> None:
    spark = MagicMock(master="spark://central:7077")
    spark._gateway.proc.poll.return_value = None
    spark.getConf().get.return_value = "false"
    spark._jsc.sc().getExecutorMemoryStatus().size.return_value = 1  # the driver

    with pytest.raises(OperatorError, match=r"has had no executor for us for 0\.3 s; start again"):
        asyncio.run(watch(spark, 0.3, 0.3))
