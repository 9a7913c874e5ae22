"""The wiring of a receiver.

    broker ◀── wake ── follower (one per partition) ── claim ───▶ KV ◀───────────┐
                          │   ▲                                                 │
               assignment ▼   │ report                                          │
                         jobs (a slot each) ──▶ Spark job: one task, a session ──▶ files

    meter, over all of it ──▶ view ──▶ supervisor: service (systemd), listening (metrics, health), new settings; presence

Everything is started and ended here; what happens in it is decided elsewhere.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from functools import partial

from pyspark import SparkContext

from broker.app.exits import ConfigurationError, Exit, OperatorError, leading
from broker.app.pages import PageServer
from broker.app.program import log_to_stderr
from broker.app.service import Notifier, Supervisor, differences
from broker.app.shutdown import BrokenOff, Shutdown
from broker.client.connection import Connection, ConnectionLost, Rejected
from receiver.consume.assignment import MarkedFolder
from receiver.consume.marked_folders import marked_folder
from receiver.driver.driver import AT_ONCE, Followers, Shared, order_of, slots_for
from receiver.driver.jobs import check_executors, run_job, unless, warm_up, watch_executors
from receiver.driver.partitions import PartitionSet, find_partitions, wait_for_partitions
from receiver.driver.presence import Presence
from receiver.driver.retention import RetentionWorker
from receiver.meter import Meter
from receiver.permissions import Permissions
from receiver.settings import ReceiverSettings
from receiver.spark.session import is_local, spark_context, watch_jvm
from receiver.storage.folders import make_folder
from receiver.storage.retention import Retention

__all__ = ["receive"]

_NO_EXECUTOR, _FORGOTTEN = 20.0, 60.0  # seconds
_STARTED_WITHIN = 120.0  # seconds; Spark asks for a master during 60 of them
_LOOK = 10.0  # seconds between looks at the number of partitions
_END_WITHIN, _LAST_RESORT = 8.5, 9.5  # seconds for all of the end, and until nothing is waited for
logger = logging.getLogger(__name__)


def receive(
    settings: ReceiverSettings, notifier: Notifier, reread: Callable[[], ReceiverSettings]
) -> None:
    """Run a receiver until it is told to stop (SIGTERM, SIGINT) or, with --once, until nothing is left.

    `reread` reads the settings again, in a thread, and raises OperatorError kinds when they will not do. Raises
    OperatorError kinds; what is not committed when it ends in whatever way is undone by the next one.
    """
    os.umask(0o027)  # everything made here is for its owner and group; workers inherit it
    asyncio.run(_Pipeline(settings, notifier).run(reread))


class _Pipeline:
    def __init__(self, settings: ReceiverSettings, notifier: Notifier) -> None:
        self._settings = settings
        self._notifier = notifier
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._connection = Connection(
            settings.server, f"logreceiver {self._owner}", access=settings.access
        )
        self._meter = Meter(time.time_ns, self._connection)
        self._ending = Shutdown(Exit.DONE, _LAST_RESORT)
        self._stop = self._ending.asked
        self._presence = Presence(self._connection, self._meter.report)
        self._retention = RetentionWorker(Retention(order_of(settings), time.time_ns), self._stop)
        self._followers: Followers | None = None

    async def run(self, reread: Callable[[], ReceiverSettings]) -> None:
        supervisor = Supervisor(self._meter, self._notifier, reread, self._change)

        def end() -> float:
            supervisor.stopping()
            return _END_WITHIN

        self._ending.listen(end)
        supervisor.hear_hang_ups()
        try:
            async with self._ending.limit:
                await supervisor.attend(self._work(), self._pages())
        except TimeoutError:
            logger.warning("ended in mid-batch; the next start does it again")
        finally:
            supervisor.hear_no_hang_ups()

    def _pages(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            from receiver.status.metrics import page_of  # a library that nobody else needs

            pages = {"/metrics": page_of(self._meter), "/healthz": self._meter.health}
            yield PageServer(address, pages)

    async def _work(self) -> None:
        settings = self._settings
        folders = _made(settings)
        patience = settings.patience.total_seconds() if settings.once else None
        found = await wait_for_partitions(
            *(self._connection, self._stop, patience, settings.numbers)
        )
        if found is None:
            return
        wanted = settings.wanted(found.count, found.beyond)
        slots = slots_for(settings.master, len(wanted))
        with ExitStack() as stack:
            try:
                spark = self._started(stack, slots)
            except BrokenOff:
                return
            if not is_local(settings.master):
                await self._reached(spark, folders)
            logger.info(
                "receiving partitions %s into %s", ", ".join(map(str, wanted)), settings.output
            )
            shared = Shared(
                *(self._connection, self._owner, self._presence, self._meter, self._retention),
                time.time_ns,
            )
            self._followers = Followers(shared, settings, folders, partial(run_job, spark), slots)
            await self._follow(self._followers, found, wanted, spark)
        await self._connection.close()

    def _started(self, stack: ExitStack, slots: int) -> SparkContext:
        """Start Spark, which takes seconds and blocks the loop; raises `BrokenOff` when told to end meanwhile."""
        spark = spark_context(
            self._settings.master,
            slots=slots,
            conf=self._settings.spark,
            executor_python=self._settings.executor_python,
        )
        with self._ending.breaking_off(), self._notifier.excused(_STARTED_WITHIN):
            return stack.enter_context(spark)

    async def _reached(self, spark: SparkContext, folders: tuple[MarkedFolder, ...]) -> None:
        """Wait until the executors see what they are to write; raises `ConfigurationError`."""
        asking = asyncio.ensure_future(asyncio.to_thread(check_executors, spark, folders))
        if not (await asyncio.wait({asking}, timeout=_NO_EXECUTOR))[0]:
            logger.warning(
                "%s has given no executor for %g s; waiting: look at its workers, their cores and memory",
                self._settings.master,
                _NO_EXECUTOR,
            )
        await unless(self._stop, asking)

    async def _follow(
        self,
        followers: Followers,
        found: PartitionSet,
        wanted: tuple[int, ...],
        spark: SparkContext,
    ) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._close_files)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(warm_up, spark, len(wanted)))
                group.create_task(self._retention.run())
                await unless(self._stop, self._presence.begin())
                followers.follow(wanted, found.layout, group)
                background = [
                    group.create_task(self._presence.last()),
                    group.create_task(self._watch(spark)),
                    group.create_task(self._follow_changes(followers, found, wanted, group)),
                ]
                await followers.run(self._stop)
                self._retention.end()
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise leading(errors) from None
        finally:
            followers.close()

    async def _watch(self, spark: SparkContext) -> None:
        if is_local(self._settings.master):
            await watch_jvm(spark)
        await watch_executors(spark, _FORGOTTEN)

    async def _follow_changes(
        self,
        followers: Followers,
        found: PartitionSet,
        wanted: tuple[int, ...],
        group: asyncio.TaskGroup,
    ) -> None:
        """Follow the partitions that there are, as their number changes; never returns."""
        while True:
            await asyncio.sleep(_LOOK)
            before = found, wanted
            with suppress(ConnectionLost, Rejected, ConfigurationError):
                found = await find_partitions(self._connection, self._settings.numbers) or found
            if self._settings.numbers is None:
                wanted = found.all
            followers.follow(wanted, found.layout, group)
            if found.count != before[0].count:
                logger.warning(
                    "the broker has %d partitions by now, it had %d; see to it that each has a receiver",
                    *(found.count, before[0].count),
                )
            if wanted != before[1]:
                logger.info("receiving partitions %s", ", ".join(map(str, wanted)))

    def _close_files(self) -> None:
        logger.info("told by SIGUSR1 to close the files of all partitions")
        if self._followers is not None:
            self._followers.close_files()

    async def _change(self, settings: ReceiverSettings) -> None:
        done = differences(self._settings, settings, AT_ONCE)
        self._settings = done.settings
        log_to_stderr(done.settings)
        self._retention.retention.order = order_of(done.settings)
        if self._followers is not None:
            self._followers.change(done.settings)
        logger.info("settings reloaded; %s", done)


def _made(settings: ReceiverSettings) -> tuple[MarkedFolder, ...]:
    """Make output and state folder where they are not there; raises OperatorError for one that cannot be written to."""
    wanted = ((settings.output, settings.permissions), (settings.state, Permissions()))
    try:
        for folder, permissions in wanted:
            make_folder(folder, permissions)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return tuple(marked_folder(folder.absolute()) for folder, _ in wanted)
    except OSError as error:
        raise OperatorError(
            f"cannot use {error.filename or settings.output}: {error.strerror}; choose --output and --state-dir"
        ) from None
