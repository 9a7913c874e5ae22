"""Start the parts of a receiver, and end them.

    broker ◀── wake ── supervisor (one per partition) ── claim ──▶ KV ◀──── commit ──┐
                          │   ▲                                                      │
              assignments ▼   │ reports                                              │
                   slot (for several partitions) ──▶ Spark task: sessions ───────────┴──▶ files

A supervisor joins its slot's next task only once messages wait for its partition.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from functools import partial

from nats_logship.app.exits import OperatorError
from nats_logship.app.pages import page_server
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service, merge_reloaded
from nats_logship.client.connection import Connection
from receiver.consume.assignment import MarkedFolder
from receiver.consume.marked_folders import hold_locks, mark_folder
from receiver.driver.driver import Driver
from receiver.driver.jobs import follow_slots, run_job, start_spark, watch
from receiver.driver.partitions import require_sound, require_unused, wait_for_partitions
from receiver.driver.stopping import run_unless_stopped
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from receiver.spark.java import is_local
from receiver.spark.jvm import Jvm
from receiver.spark.session import count_local_slots, count_slots, spark_context
from receiver.storage.folders import make_synced_folder
from receiver.storage.layout import Permissions
from receiver.storage.partition_folders import require_template

_EXECUTOR_PATIENCE = 60.0  # seconds without an executor
_END_WITHIN, _LAST_RESORT = 8.5, 9.5  # seconds for the whole end, and until the process is left
_RELOADABLE = frozenset(
    {
        *("compress", "keep", "keep_age", "keep_bytes", "rotate_size"),
        *("commit_every", "log_format", "log_level", "max_batch"),
    }
)
"""The settings that a running receiver can change; its next tasks follow them."""

logger = logging.getLogger(__name__)


def receive(
    settings: ReceiverSettings,
    notifier: Notifier,
    reread: Callable[[], ReceiverSettings],
    jvm: Jvm,
) -> None:
    """Run a receiver until SIGTERM or SIGINT, or with --once until nothing is left.

    `reread` reads the settings again, in a thread; it raises OperatorError for wrong ones. Raises
    OperatorError. However it ends, the next start undoes what was not committed.
    """
    asyncio.run(_Pipeline(settings, jvm).run(notifier, reread))


class _Pipeline:
    def __init__(self, settings: ReceiverSettings, jvm: Jvm) -> None:
        self._settings, self._jvm = settings, jvm
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._connection = Connection(
            settings.server, f"logreceiver {self._owner}", access=settings.access
        )
        self._meter = Meter(time.time_ns, self._connection)
        self._service = Service(
            self._meter, self._change, lambda: _END_WITHIN, last_resort=_LAST_RESORT
        )
        self._stop = self._service.stop_requested
        self._driver: Driver | None = None

    async def run(self, notifier: Notifier, reread: Callable[[], ReceiverSettings]) -> None:
        if not await self._service.run(notifier, reread, self._work(), self._pages()):
            logger.warning("ended within a batch; the next start does the batch again")
        elif self._driver is None:
            logger.info("stopped before a partition was claimed; nothing was received")

    def _pages(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            from receiver.status.metrics import (
                make_page,  # imports a library that only metrics need
            )

            pages = {"/metrics": make_page(self._meter), "/healthz": self._meter.health}
            yield page_server(address, pages)

    async def _work(self) -> None:
        settings = self._settings
        with _usable(settings):
            folders = _make_folders(settings)
            require_template(settings.state, settings.path_template)
        patience = settings.patience.total_seconds() if settings.once else None
        found = await wait_for_partitions(self._connection, self._stop, patience)
        if found is None:
            return
        layout, existing = found
        wanted = settings.select_partitions(existing)
        for check in (require_unused, require_sound):
            await run_unless_stopped(self._stop, check(settings, self._connection, layout, wanted))
        slots = count_local_slots(settings.master) or len(wanted)
        starting = spark_context(
            settings.master,
            slots=slots,
            conf=settings.spark,
            executor_python=settings.executor_python,
            jvm=self._jvm,
        )
        with ExitStack() as stack:
            spark = await start_spark(starting, stack, self._jvm, self._stop)
            if spark is None:
                return
            with _usable(settings):
                stack.enter_context(hold_locks(folders))
            self._driver = Driver(
                settings=self._settings,
                connection=self._connection,
                owner=self._owner,
                meter=self._meter,
                folders=folders,
                run_job=partial(run_job, spark),
                slots=slots,
            )
            self._driver.use_slots(await asyncio.to_thread(count_slots, spark, slots))
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._driver.close_files)
            if is_local(settings.master):
                watching = [watch(spark)]
            else:
                following = follow_slots(spark, self._driver.use_slots)
                watching = [watch(spark, _EXECUTOR_PATIENCE), following]
            await self._driver.run(*found, self._stop, *watching)
        await self._connection.close()

    async def _change(self, settings: ReceiverSettings) -> None:
        self._settings, changes = merge_reloaded(self._settings, settings, _RELOADABLE)
        log_to_stderr(self._settings)
        if self._driver is not None:
            self._driver.change(self._settings)
        logger.info("settings reloaded; %s", changes)


def _make_folders(settings: ReceiverSettings) -> tuple[MarkedFolder, ...]:
    """Make the output and state folders if they do not exist, and mark them.

    Raises OSError for a folder that cannot be written to.
    """
    folders = ((settings.output, settings.permissions), (settings.state, Permissions()))
    for folder, permissions in folders:
        make_synced_folder(folder, permissions)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    return tuple(mark_folder(folder.absolute()) for folder, _ in folders)


@contextmanager
def _usable(settings: ReceiverSettings) -> Iterator[None]:
    """Raise OperatorError for an error of the output or the state folder."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"cannot use {error.filename or settings.output}: {error.strerror}; "
            "choose --output and --state-dir"
        ) from None
