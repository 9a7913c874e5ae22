"""Start the parts of `logreceiver table`, and end them."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.pages import page_server
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service, merge_reloaded
from nats_logship.app.timestamps import Moment
from nats_logship.app.units import parse_moment
from nats_logship.client.access import without_password
from nats_logship.client.connection import Connection
from receiver.driver.jobs import find_reason, has_died, start_spark, watch
from receiver.driver.partitions import wait_for_partitions
from receiver.driver.standby import ReceiverPresence
from receiver.driver.stopping import run_unless_stopped
from receiver.spark.java import is_local
from receiver.spark.jvm import Jvm
from receiver.spark.session import count_local_slots, spark_context
from receiver.table.claim import TableClaim
from receiver.table.columns import LINES
from receiver.table.compact import merge_files
from receiver.table.gaps import GAPS
from receiver.table.log import Log
from receiver.table.maintenance import Maintenance
from receiver.table.memory import run_and_release
from receiver.table.meter import TableMeter
from receiver.table.settings import TableSettings
from receiver.table.write import Broker, write_range
from receiver.table.writer import JobFailed, TableLimits, TableWriter

_END_WITHIN, _LAST_RESORT = 8.5, 9.5  # seconds for the whole end, and until the process is left
_EXECUTOR_PATIENCE = 60.0  # seconds without an executor
_TASKS_OF_CLUSTER = 4
_RELOADABLE = frozenset({"log_format", "log_level"})
Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)


def write_table(
    settings: TableSettings, notifier: Notifier, reread: Callable[[], TableSettings], jvm: Jvm
) -> None:
    """Write the table until SIGTERM or SIGINT, or with --once until nothing waits.

    Raises OperatorError. However it ends, the next start goes on behind the last commit.
    """
    asyncio.run(_Pipeline(settings, jvm).run(notifier, reread))


class _Pipeline:
    def __init__(self, settings: TableSettings, jvm: Jvm) -> None:
        self._settings, self._jvm = settings, jvm
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._connection = Connection(
            settings.server, f"logreceiver table {self._owner}", access=settings.access
        )
        self._meter = TableMeter(time.time_ns, self._connection, settings.every.total_seconds())
        self._service = Service(
            self._meter, self._change, lambda: _END_WITHIN, last_resort=_LAST_RESORT
        )
        self._stop = self._service.stop_requested

    async def run(self, notifier: Notifier, reread: Callable[[], TableSettings]) -> None:
        if not await self._service.run(notifier, reread, self._work(), self._pages()):
            logger.warning("ended within a round; the next start does the round again")

    def _pages(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            pages = {"/metrics": self._meter.metrics_page(), "/healthz": self._meter.health}
            yield page_server(address, pages)

    async def _work(self) -> None:
        settings = self._settings
        since = _parse_since(settings.since)
        settings.location.require_folder()
        patience = 15.0 if settings.once else None
        if await wait_for_partitions(self._connection, self._stop, patience) is None:
            return
        with ExitStack() as stack:
            tasks = settings.tasks or count_local_slots(settings.master) or _TASKS_OF_CLUSTER
            starting = spark_context(
                settings.master,
                slots=tasks,
                conf=settings.spark,
                executor_python=settings.executor_python,
                jvm=self._jvm,
            )
            spark = await start_spark(starting, stack, self._jvm, self._stop)
            if spark is not None:
                await self._write(spark, tasks, since)
        await self._connection.close()

    async def _write(self, spark: SparkContext, tasks: int, since: Moment) -> None:
        """Run the writer beside the watch of Spark, which ends it if Spark dies."""
        settings = self._settings
        presence = ReceiverPresence(self._connection, self._meter.report)
        await run_unless_stopped(self._stop, presence.start())
        writer = self._make_writer(spark, tasks, since, presence.address)
        work = writer.run_once if settings.once else writer.run
        patience = inf if is_local(settings.master) else _EXECUTOR_PATIENCE
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(one)
                for one in (
                    watch(spark, patience),
                    presence.keep_answering(),
                    self._cancel_jobs(spark),
                )
            ]
            await work(self._stop)
            for one in beside:
                one.cancel()

    async def _cancel_jobs(self, spark: SparkContext) -> None:
        await self._stop.wait()
        with suppress(Py4JError, OSError):
            await asyncio.to_thread(spark.cancelAllJobs)

    def _make_writer(
        self, spark: SparkContext, tasks: int, since: Moment, presence: str
    ) -> TableWriter:
        settings, meter = self._settings, self._meter
        lines, gaps = settings.location.child("lines"), settings.location.child("gaps")
        broker = Broker(settings.server, settings.access)
        work = partial(write_range, broker=broker, lines=lines, gaps=gaps)
        address = without_password(settings.location.root)
        return TableWriter(
            connection=self._connection,
            lines=Log(lines, LINES),
            gaps=Log(gaps, GAPS),
            claim=TableClaim(self._connection, "", address, self._owner, presence, settings.once),
            meter=meter,
            maintenance=Maintenance(
                meter=meter,
                merge=partial(_run_job, spark, merge_files),
                tasks=tasks,
                keep=settings.keep,
                grace=settings.readers_grace,
                is_compacting=settings.compact,
            ),
            run_tasks=partial(_run_job, spark, work),
            limits=TableLimits(settings.every.total_seconds(), int(settings.commit_size), tasks),
            since=since,
        )

    async def _change(self, settings: TableSettings) -> None:
        self._settings, changes = merge_reloaded(self._settings, settings, _RELOADABLE)
        log_to_stderr(self._settings)
        logger.info("settings reloaded; %s", changes)


def _parse_since(text: str) -> Moment:
    now = datetime.now(UTC)  # noqa: TID251 - `2h` is back from now
    try:
        return parse_moment(text, now)
    except ValueError as error:
        raise ConfigurationError(f"--since: {error}") from None


def _run_job(
    spark: SparkContext, work: Callable[[Item], Result], items: Sequence[Item]
) -> Iterable[Result]:
    """Return what a Spark job returns, a task for each item.

    Raises `JobFailed` if Spark gives up on it, OperatorError if the JVM has died.
    """
    try:
        tasks = spark.parallelize(items, len(items))
        return tasks.map(partial(run_and_release, work)).collect()
    except Py4JJavaError as error:
        raise JobFailed(find_reason(error)) from None
    except Exception as error:
        # pyspark itself raises any error if the JVM dies while it reads
        if isinstance(error, Py4JError | OSError) or has_died(spark):
            reason = f"Spark's Java process has died ({type(error).__name__}); start again"
            raise OperatorError(reason) from error
        raise
