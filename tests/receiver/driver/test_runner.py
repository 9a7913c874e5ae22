"""Jobs that Spark cannot even begin: whose scratch file has no room, whose JVM has gone."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from broker.app.exits import OperatorError
from receiver.consume.assignment import Assignment, Blocked, Cause, Destination
from receiver.driver.jobs import run_job


class Context(SparkContext):
    """A context whose every job needs a file that cannot be had."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def parallelize(self, *_: Any, **__: Any) -> Any:
        raise self._error


def _destination(folder: Path) -> Destination:
    return Destination(folder, folder / "state", 0, ())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_a_jobs_scratch_file_blocks_its_partition_and_ends_nothing(
    number: int, tmp_path: Path
) -> None:
    error = OSError(number, os.strerror(number), "scratch/tmp1")

    report = run_job(Context(error), _destination(tmp_path), Assignment(3, 7, 1, 1))

    assert report.ended == Blocked(Cause.DISK, f"Spark's scratch folder: {os.strerror(number)}")
    assert (report.done.first, report.done.until) == (7, 7)


def test_a_jvm_that_has_died_ends_the_receiver(tmp_path: Path) -> None:
    error = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    with pytest.raises(OperatorError, match="Java process has died"):
        run_job(Context(error), _destination(tmp_path), Assignment(3, 7, 1, 1))
