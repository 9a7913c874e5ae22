"""Spark jobs of one task each: who has a slot for one, what becomes of it, and whether executors can do it at all."""

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from broker.app.exits import ConfigurationError, OperatorError
from receiver.consume import task
from receiver.consume.assignment import (
    Assignment,
    Blocked,
    Cause,
    Destination,
    Done,
    MarkedFolder,
    Report,
)
from receiver.consume.marked_folders import Elsewhere, held, is_held, look

__all__ = ["Jobs", "check_executors", "run_job", "unless", "warm_up", "watch_executors"]

_SOON = 1.0  # seconds in which a task leaves that is asked to
_REFUSALS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}
"""What a disk refuses with; a JVM that has died leaves connections behind, and these end otherwise."""
_ROUNDS = 2
_LOOK = 10.0  # seconds
_HELD_UP = 0.2  # seconds, so that no executor takes all questions

Answer = TypeVar("Answer")


async def unless(stop: asyncio.Event, call: Awaitable[Answer]) -> Answer | None:
    """Return what `call` returns, or None as soon as `stop` is set; raises what `call` raises."""
    work = asyncio.ensure_future(call)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        stopped.cancel()
        work.cancel()


class Jobs:
    """The slots that Spark has for tasks: while somebody waits for one, those who have had theirs longest are asked to leave."""

    def __init__(self, runner: Callable[[Assignment], Report], slots: int) -> None:
        """`runner` is called in a thread. At most `slots` jobs run at once, each for one partition: one that is slow holds up no other."""
        self._runner = runner
        self._threads = ThreadPoolExecutor(slots, "job")
        self._slots = asyncio.Semaphore(slots)
        self._unasked: list[asyncio.Event] = []  # of those that run, the oldest first

    async def submit(self, assignment: Assignment, leave: asyncio.Event) -> Report:
        """Have an assignment done and return its report; whatever the runner raises comes through.

        Sets `leave` when somebody else waits for the slot.
        """
        asking = asyncio.ensure_future(self._ask_to_leave())
        try:
            await self._slots.acquire()
        finally:
            asking.cancel()
        self._unasked.append(leave)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, self._runner, assignment)
        finally:
            with suppress(ValueError):
                self._unasked.remove(leave)
            self._slots.release()

    async def _ask_to_leave(self) -> None:
        """Ask one after the other while somebody waits: who was asked may hang in a disk that does not answer."""
        while True:
            if self._slots.locked() and self._unasked:
                self._unasked.pop(0).set()
            await asyncio.sleep(_SOON)

    def close(self) -> None:
        """Let go of the threads; a job that still runs goes on without anybody who waits for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def run_job(spark: SparkContext, destination: Destination, assignment: Assignment) -> Report:
    """Return the report of a task; a job that Spark gave up on blocks its partition, or one whose scratch file has no room.

    Raises OperatorError when there is no Spark any more.
    """
    try:
        tasks = spark.parallelize([assignment], 1)
        return tasks.map(partial(task.run, destination=destination)).collect()[0]
    except Py4JJavaError as error:
        return _blocked(assignment, Cause.SPARK, _cause_of(error))
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


def _cause_of(error: Py4JJavaError) -> str:
    """Return the one line that matters of a Java stack trace: the last Python error in it, else its first line."""
    lines = [line.strip() for line in str(error.java_exception).splitlines() if line.strip()]
    named = [
        line for line in lines if not line.startswith(("at ", "File ", "...")) and "Error" in line
    ]
    return (named or lines or ["unknown"])[-1 if named else 0][:300]


def check_executors(spark: SparkContext, folders: tuple[MarkedFolder, ...]) -> None:
    """Return when every executor of a cluster that is there sees the folders, and feels the driver's locks on them.

    Executors may come later; each task looks for itself again. Raises `ConfigurationError` naming the machine that does not
    see them, or saying why nothing can run there.
    """
    count = _ROUNDS * max(spark.defaultParallelism, 1)
    with held(folders):
        try:
            asked = spark.parallelize(range(count), count).map(partial(_objection, folders=folders))
            objections = {objection for objection in asked.collect() if objection}
        except Py4JJavaError as error:
            raise ConfigurationError(
                f"the executors of {spark.master} cannot run our tasks: {_cause_of(error)}"
            ) from None
    if objections:
        raise ConfigurationError("; ".join(sorted(objections)))


def _objection(_: int, folders: tuple[MarkedFolder, ...]) -> str:
    time.sleep(_HELD_UP)
    try:
        for one in folders:
            look(one)
            if not is_held(one):
                return (
                    f"locks on {one.folder} do not reach {socket.gethostname()}; mount it with locks that all "
                    "machines share, such as NFS version 4"
                )
    except (Elsewhere, OSError) as error:
        return str(error)
    return ""


async def watch_executors(spark: SparkContext, patience: float) -> None:
    """Never return; raises OperatorError when there has been no executor for `patience` seconds.

    A master that has forgotten us gives us none ever again; a new start has it know us. Where executors come and go as
    they are needed, none is no news.
    """
    if spark.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        await asyncio.Event().wait()
    loop = asyncio.get_running_loop()
    seen = loop.time()
    while loop.time() - seen < patience:
        await asyncio.sleep(min(_LOOK, patience))
        if await asyncio.to_thread(_executors, spark):
            seen = loop.time()
    raise OperatorError(
        f"{spark.master} has had no executor for us for {patience:g} s; start again"
    )


def _executors(spark: SparkContext) -> int:
    try:
        known = spark._jsc.sc().getExecutorMemoryStatus().size()
    except (Py4JError, OSError):
        return 0
    return int(known) - 1  # the driver is one of them
