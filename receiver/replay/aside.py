"""Spark jobs run beside the main thread, which stays free for signals and for showing how far they are."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.app.exits import OperatorError
from receiver.driver.runner import cause_of

__all__ = ["Aside", "beside", "part_done"]

Answer = TypeVar("Answer")

_LOOK = 0.5  # seconds


class Aside:
    """One job at a time, in a thread of its own."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        """Use a thread that is ended elsewhere."""
        self._thread = thread

    def start(self, job: Callable[[], Answer]) -> "Future[Answer]":
        """Start a job, or have it wait for the one before."""
        return self._thread.submit(_answer_of, job)

    def wait(self, job: Callable[[], Answer], look: Callable[[], object] | None = None) -> Answer:
        """Return what a job returns, and call `look` twice a second meanwhile; raises OperatorError when Spark gives up."""
        future = self.start(job)
        while look is not None and not wait([future], _LOOK).done:
            look()
        return future.result()


@contextmanager
def beside() -> Iterator[Aside]:
    """Have a thread for jobs; when the block is left by an exception, nobody waits for a job under way."""
    thread = ThreadPoolExecutor(1, "spark-job")
    try:
        yield Aside(thread)
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def part_done(spark: SparkContext) -> float:
    """Return the part of the tasks under way that are done, from 0 to 1, where these cannot tell it themselves."""
    tracker = spark.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    count = sum(stage.numTasks for stage in stages if stage)
    return sum(stage.numCompletedTasks for stage in stages if stage) / count if count else 0.0


def _answer_of(job: Callable[[], Answer]) -> Answer:
    try:
        return job()
    except Py4JJavaError as error:
        raise OperatorError(f"Spark gave the job up: {cause_of(error)}") from None
    except Py4JError as error:
        raise OperatorError(
            f"Spark's Java process has died ({type(error).__name__}); start again"
        ) from error
