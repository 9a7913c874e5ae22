"""Runs Spark tasks beside the main thread, and shows how far a long piece of work is. The driver's side."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TextIO, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.app.durations import format_duration, parse_duration
from broker.app.exits import OperatorError
from receiver.driver.runner import cause_of
from receiver.replay.tasks import Failed, Unit, reached, tried

__all__ = ["Progress", "bar", "run_tasks"]

_LOOK = 0.5  # seconds
_WIDTH = 30
_LOGGED_EVERY = 10.0  # seconds
_TOLD_FROM = 2.0  # seconds; no rate is known before

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


def run_tasks(
    spark: SparkContext, units: Sequence[Unit], work: Callable[[Unit], Answer], progress: Path
) -> list[Answer]:
    """Return what `work` returns for each unit, each in a task of Spark; raises OperatorError where one fails.

    How far they are is shown as far as they tell it in the folder `progress`, see `tasks.reach`. Nobody waits for tasks when
    this ends by an exception.
    """
    job = spark.parallelize(units, len(units)).map(partial(tried, work=work))
    thread = ThreadPoolExecutor(1, "spark-job")
    try:
        with Progress(sys.stderr, time.monotonic) as shown:
            future = thread.submit(job.collect)
            while not wait([future], _LOOK).done:
                shown.show(reached(progress, units))
            outcomes = _answers(future)
    finally:
        thread.shutdown(wait=False, cancel_futures=True)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise OperatorError(f"given up: {outcome.detail}")
    return [outcome for outcome in outcomes if not isinstance(outcome, Failed)]


def _answers(future: "Future[list[Answer | Failed]]") -> list[Answer | Failed]:
    try:
        return future.result()
    except Py4JJavaError as error:
        raise OperatorError(f"Spark gave the job up: {cause_of(error)}") from None
    except Py4JError as error:
        raise OperatorError(
            f"Spark's Java process has died ({type(error).__name__}); start again"
        ) from error


def bar(part: float, elapsed: float) -> str:
    """Return a bar for the part that is done, from 0 to 1, after `elapsed` seconds."""
    full = int(part * _WIDTH)
    return f"[{'#' * full}{'.' * (_WIDTH - full)}] {_words(part, elapsed)}"


def _words(part: float, elapsed: float) -> str:
    if not part or elapsed < _TOLD_FROM:
        return f"{part:.0%}"
    left = parse_duration(round(elapsed / part * (1 - part)))
    return f"{part:.0%}, {format_duration(left)} to go"


class Progress:
    """Shows a part that grows: a bar on a terminal, which is gone afterwards, now and then a line in a log."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        """Begin now; `clock` is in seconds."""
        self._stream = stream
        self._clock = clock
        self._began = self._told = clock()
        self._is_terminal = stream.isatty()

    def show(self, part: float) -> None:
        """Say that `part` is done, from 0 to 1."""
        now = self._clock()
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{bar(part, now - self._began)}")
            self._stream.flush()
        elif now - self._told >= _LOGGED_EVERY:
            self._told = now
            logger.info("%s", _words(part, now - self._began))

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
