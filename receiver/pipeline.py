"""The wiring of a receiver.

    broker ◀── wake ── follower (one per partition) ── ledger ──▶ KV ◀───────────┐
                          │   ▲                                                 │
               assignment ▼   │ report                                          │
                         jobs (a slot each) ──▶ Spark job: one task, which stays ──▶ files

    meter, over all of it ──▶ view ──▶ desk: service (systemd), listening (metrics, health), new settings; presence; ticker

Everything is started and ended here; what happens in it is decided elsewhere.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import UTC, datetime
from functools import partial

from pyspark import SparkContext

from broker.app.desk import Desk
from broker.app.ending import BrokenOff, Ending
from broker.app.exits import Exit, FencedError, OperatorError, leading
from broker.app.listening import Listening
from broker.app.notify import Notifier
from broker.app.program import log_to_stderr
from broker.app.reload import differences
from broker.client.connection import Connection
from receiver.consume.assignment import Assignment, Place
from receiver.consume.ledger import Ledger, TakenOver
from receiver.consume.outcome import Report
from receiver.consume.place import place_of
from receiver.consume.wake import Wake
from receiver.driver import headcount
from receiver.driver.account import Account
from receiver.driver.configured import partitions_of
from receiver.driver.follower import Follower
from receiver.driver.jobs import Jobs
from receiver.driver.orders import (
    AT_ONCE,
    calendar_of,
    destination_of,
    order_of,
    pace_of,
    slots_for,
)
from receiver.driver.patience import unless
from receiver.driver.presence import Presence
from receiver.driver.reach import check_reach, watch
from receiver.driver.runner import run_job, warm_up
from receiver.driver.standby import Standby
from receiver.driver.tidier import Tidier
from receiver.driver.turns import Turns
from receiver.meter import Meter
from receiver.permissions import Permissions
from receiver.settings import ReceiverSettings
from receiver.spark.session import is_local, spark_context, watch_jvm
from receiver.status.ticker import Ticker
from receiver.status.view import View
from receiver.storage.folders import make_folder
from receiver.storage.retention import Retention
from receiver.storage.site import Site

__all__ = ["receive"]

_NO_EXECUTOR, _FORGOTTEN = 20.0, 60.0  # seconds
_STARTED_WITHIN = 120.0  # seconds; Spark asks for a master during 60 of them
_STOP_WITHIN = 7.0  # seconds for the batches under way, so that all ends within ten
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
        self._meter = Meter(time.time_ns)
        self._view = View(self._connection, self._meter, time.time_ns)
        self._ending = Ending(Exit.DONE, _LAST_RESORT)
        self._stop = self._ending.asked
        self._presence = Presence(self._connection, self._view.report)
        self._count = 0
        self._turns: dict[int, Turns] = {}
        self._followers: list[Follower] = []
        self._followed: set[int] = set()
        self._lost: list[TakenOver] = []
        self._places: tuple[Place, ...] = ()
        self._tidier = Tidier(Retention(order_of(settings), time.time_ns), self._stop.is_set)

    async def run(self, reread: Callable[[], ReceiverSettings]) -> None:
        desk = Desk(self._view, self._notifier, reread, self._change)
        self._ending.listen(lambda: self._end(desk))
        desk.hear_hang_ups()
        try:
            async with self._ending.limit:
                await desk.attend(self._work(), self._beside())
        except TimeoutError:
            logger.warning("ended in mid-batch; the next start does it again")
        finally:
            desk.hear_no_hang_ups()

    def _end(self, desk: Desk[ReceiverSettings]) -> float:
        desk.stopping()
        return _END_WITHIN

    def _beside(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            from receiver.status.metrics import Metrics  # a library that nobody else needs

            pages = {"/metrics": Metrics(self._view).page, "/healthz": self._view.health}
            yield Listening(address, pages)

    async def _work(self) -> None:
        settings = self._settings
        _check_folders(settings)
        patience = settings.patience.total_seconds() if settings.once else None
        count = await partitions_of(self._connection, self._stop, patience)
        if count is None:
            return
        partitions, self._count = settings.wanted(count), count
        slots = slots_for(settings.master, len(partitions))
        with ExitStack() as stack:
            try:
                spark = self._started(stack, slots)
            except BrokenOff:
                return
            self._places = _places_of(settings)
            if not is_local(settings.master):
                await self._reached(spark)
            names = ", ".join(map(str, partitions))
            logger.info("receiving partitions %s into %s", names, settings.output)
            await self._follow(partitions, spark, slots)
        await self._connection.close()

    def _started(self, stack: ExitStack, slots: int) -> SparkContext:
        """Start Spark, which takes seconds and blocks the loop; raises `BrokenOff` when told to end meanwhile."""
        spark = spark_context(
            self._settings.master,
            slots=slots,
            conf=self._settings.spark,
            scratch=self._settings.state,
            executor_python=self._settings.executor_python,
        )
        with self._ending.breaking_off(), self._notifier.excused(_STARTED_WITHIN):
            return stack.enter_context(spark)

    async def _watch(self, spark: SparkContext) -> None:
        if is_local(self._settings.master):
            await watch_jvm(spark)
        await watch(spark, _FORGOTTEN)

    async def _reached(self, spark: SparkContext) -> None:
        """Wait until the executors see what they are to write; raises `ConfigurationError`."""
        asking = asyncio.ensure_future(asyncio.to_thread(check_reach, spark, self._places))
        if not (await asyncio.wait({asking}, timeout=_NO_EXECUTOR))[0]:
            logger.warning(
                "%s has given no executor for %g s; waiting: look at its workers, their cores and memory",
                self._settings.master,
                _NO_EXECUTOR,
            )
        await unless(self._stop, asking)

    async def _follow(self, partitions: Sequence[int], spark: SparkContext, slots: int) -> None:
        calendar = calendar_of(self._settings)
        self._turns = {number: Turns(calendar, time.time_ns) for number in partitions}
        self._followed = set(partitions)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._turn)
        jobs = Jobs(partial(self._run, spark), slots)
        screen = sys.stderr if sys.stderr.isatty() else None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(warm_up, spark, slots))
                group.create_task(self._tidier.run())
                await unless(self._stop, self._presence.begin())
                beside = [
                    group.create_task(self._presence.last()),
                    group.create_task(Ticker(self._view, screen).run()),
                    group.create_task(self._watch(spark)),
                    group.create_task(headcount.watch(self._connection, self._count)),
                ]
                await self._until_done(
                    {group.create_task(self._one(number, jobs)) for number in partitions}
                )
                self._tidier.end()
                for task in beside:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise leading(errors) from None
        finally:
            jobs.close()
        if self._lost and not self._stop.is_set():
            raise FencedError(f"{self._lost[-1]}; this receiver stops")

    def _run(self, spark: SparkContext, assignment: Assignment) -> Report:
        # settings may have been read again since the last stay
        return run_job(spark, destination_of(self._settings, self._places, self._count), assignment)

    async def _until_done(self, followers: "set[asyncio.Task[None]]") -> None:
        """Wait for the followers; once told to stop, no longer than the bound."""
        stop = asyncio.ensure_future(self._stop.wait())
        running = followers
        while running and not stop.done():
            await asyncio.wait({*running, stop}, return_when=asyncio.FIRST_COMPLETED)
            running = {follower for follower in running if not follower.done()}
        stop.cancel()
        if running:
            _, running = await asyncio.wait(running, timeout=_STOP_WITHIN)
        if running:
            logger.warning(
                "%d partitions did not come to the end of a batch; the next start does it again",
                len(running),
            )
        for follower in running:
            follower.cancel()

    async def _one(self, partition: int, jobs: Jobs) -> None:
        wake = Wake(self._connection, partition)
        account = Account(partition, self._meter)
        make = partial(self._follower, partition, jobs, wake, account)
        try:
            if self._settings.standby:
                await self._stand_by(partition, make, account)
            else:
                await make().run(self._stop)
        except TakenOver as error:
            self._followed.discard(partition)
            self._lose(error)
            account.lost(error.owner)
        except FencedError as error:
            raise FencedError(f"{error}; this receiver stops, start it again") from None
        self._followed.discard(partition)
        await wake.close()

    def _lose(self, error: TakenOver) -> None:
        """Go on without a partition; of the last one the program's end tells."""
        self._lost.append(error)
        if self._followed:
            logger.error("%s; this one goes on with its others", error)

    async def _stand_by(
        self, partition: int, follower: Callable[[], Follower], account: Account
    ) -> None:
        """Own the partition whenever nobody else does, until told to stop."""
        silence = self._settings.takeover_after.total_seconds()
        loop = asyncio.get_running_loop()
        standby = Standby(self._connection, partition, silence, loop.time, account.standing_by)
        while (revision := await unless(self._stop, standby.wait(self._stop))) is not None:
            try:
                await follower().run(self._stop, revision)
            except FencedError as error:
                logger.warning("%s; it stands by again", error)

    def _follower(self, partition: int, jobs: Jobs, wake: Wake, account: Account) -> Follower:
        settings = self._settings
        ledger = Ledger(
            self._connection,
            partition,
            self._owner,
            Site(
                *(settings.output, settings.state, partition, settings.path_template, self._count)
            ),
            self._presence.address,
        )
        follower = Follower(
            partition,
            self._connection,
            jobs,
            ledger,
            wake,
            pace_of(settings, len(self._turns)),
            account,
            _now,
            self._tidier.closed,
            self._turns[partition],
        )
        self._followers.append(follower)
        return follower

    def _turn(self) -> None:
        logger.info("told by SIGUSR1 to close the files of all partitions")
        for turns in self._turns.values():
            turns.asked.set()

    async def _change(self, settings: ReceiverSettings) -> None:
        done = differences(self._settings, settings, AT_ONCE)
        self._settings = done.settings  # the next stays go by it
        log_to_stderr(done.settings)
        self._tidier.change(order_of(done.settings))
        for follower in self._followers:
            follower.pace = pace_of(done.settings, len(self._turns))
        logger.info("settings read again; %s", done)


def _check_folders(settings: ReceiverSettings) -> None:
    wanted = ((settings.output, settings.permissions), (settings.state, Permissions()))
    for folder, permissions in wanted:
        try:
            make_folder(folder, permissions)
        except OSError as error:
            raise OperatorError(
                f"cannot use {folder}: {error.strerror}; choose --output and --state-dir"
            ) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OperatorError(
                f"cannot write to {folder}: permission denied; choose --output and --state-dir"
            )


def _places_of(settings: ReceiverSettings) -> tuple[Place, ...]:
    try:
        return tuple(place_of(folder.absolute()) for folder in (settings.output, settings.state))
    except OSError as error:
        raise OperatorError(
            f"cannot use {error.filename}: {error.strerror}; choose --output and --state-dir"
        ) from None


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
