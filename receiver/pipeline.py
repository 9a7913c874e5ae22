"""The wiring of a receiver.

    broker ◀── wake ── follower (one per partition) ── ledger ──▶ KV ◀───────────┐
                          │   ▲                                                 │
               assignment ▼   │ report                                          │
                         jobs (a slot each) ──▶ Spark job: one task, which stays ──▶ files

Everything is started and ended here; what happens in it is decided elsewhere.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from pyspark import SparkContext

from broker import bucket
from broker.connection import Connection, ConnectionLost, Rejected
from broker.exits import ConfigurationError, FencedError, OperatorError, leading
from broker.topology import CONFIG_BUCKET, PARTITIONS_KEY
from receiver.assignment import LARGEST_PULL, Destination, Stay
from receiver.following.follower import Follower, Pace
from receiver.following.jobs import Jobs
from receiver.following.ledger import Ledger
from receiver.following.patience import pause, unless
from receiver.following.presence import Presence
from receiver.following.runner import run_job, warm_up
from receiver.following.standby import Standby
from receiver.following.tidier import Tidier
from receiver.following.turns import Turns
from receiver.following.wake import Wake
from receiver.settings import ReceiverSettings
from receiver.spark.session import is_local, spark_context
from receiver.writing.bond import Folders
from receiver.writing.calendar import Calendar
from receiver.writing.closet import Closet, Order
from receiver.writing.folders import make_folder
from receiver.writing.keeping import Limits
from receiver.zones import named_zone

__all__ = ["receive"]

_MOST_WORKERS = 16
_IN_HAND = (
    64 * 1024 * 1024
)  # bytes that all tasks of a machine hold at once: a pull being written, another under way
_LEAST_PULL = 1024 * 1024  # bytes
_STAY, _SILENCE = 5.0, 1.0  # seconds that a task stays at most, and without a message
_STOP_WITHIN = 7.0  # seconds for the batches under way, so that all ends within ten

logger = logging.getLogger(__name__)


def receive(settings: ReceiverSettings) -> None:
    """Run a receiver until it is told to stop (SIGTERM, SIGINT) or, with --once, until nothing is left.

    Raises OperatorError kinds; what is not committed when it ends in whatever way is undone by the next one.
    """
    os.umask(0o027)  # everything made here is for its owner and group; workers inherit it
    asyncio.run(_Pipeline(settings).run())


class _Pipeline:
    def __init__(self, settings: ReceiverSettings) -> None:
        self._settings = settings
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._connection = Connection(
            settings.server, f"logreceiver {self._owner}", access=settings.access
        )
        self._stop = asyncio.Event()
        self._presence = Presence(self._connection, self._owner)
        self._turns: dict[int, Turns] = {}
        self._tidier = Tidier(Closet(_order(settings), time.time_ns), self._stop.is_set)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        _check_folders(self._settings)
        partitions = await self._partitions()
        if not partitions:
            return
        slots = _slots(self._settings.master, len(partitions))
        with spark_context(
            self._settings.master, slots=slots, scratch=self._settings.state
        ) as spark:
            logger.info(
                "receiving partitions %s into %s",
                ", ".join(map(str, partitions)),
                self._settings.output,
            )
            await self._follow(partitions, spark, slots)
        await self._connection.close()

    async def _partitions(self) -> tuple[int, ...]:
        patience, told = self._settings.patience.total_seconds(), False
        give_up = asyncio.get_running_loop().time() + patience
        if self._settings.once:
            await unless(self._stop, self._connection.once(patience))
        while not self._stop.is_set():
            entry = await self._count_entry()
            if self._stop.is_set():
                break
            if entry is not None:
                return self._settings.wanted(_count(entry.value))
            if self._settings.once and asyncio.get_running_loop().time() >= give_up:
                raise ConfigurationError(
                    f"bucket {CONFIG_BUCKET} is not there; run `logbroker apply` first"
                )
            if not told:
                logger.warning(
                    "bucket %s is not there yet; waiting for `logbroker apply`", CONFIG_BUCKET
                )
            told = True
            await pause(self._stop, 1)
        return ()

    async def _count_entry(self) -> bucket.Entry | None:
        """Read the number of partitions; None when it is not there, or when told to stop."""
        while not self._stop.is_set():
            try:
                return await unless(
                    self._stop, bucket.read(self._connection, CONFIG_BUCKET, PARTITIONS_KEY)
                )
            except ConnectionLost:
                continue
            except Rejected:
                break
        return None

    async def _follow(self, partitions: Sequence[int], spark: SparkContext, slots: int) -> None:
        calendar = Calendar(self._settings.rotate_every, named_zone(self._settings.time_zone))
        self._turns = {number: Turns(calendar, time.time_ns) for number in partitions}
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._turn)
        jobs = Jobs(partial(run_job, spark, self._destination()), slots)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(warm_up, spark, slots))
                group.create_task(self._tidier.run())
                await unless(self._stop, self._presence.begin())
                present = group.create_task(self._presence.last())
                await self._until_done(
                    {group.create_task(self._one(number, jobs)) for number in partitions}
                )
                self._tidier.end()
                present.cancel()
        except BaseExceptionGroup as errors:
            raise leading(errors) from None
        finally:
            jobs.close()

    async def _until_done(self, followers: "set[asyncio.Task[None]]") -> None:
        """Wait for the followers; once told to stop, no longer than the bound."""
        stop = asyncio.ensure_future(self._stop.wait())
        running = followers
        while running and not stop.done():
            await asyncio.wait({*running, stop}, return_when=asyncio.FIRST_COMPLETED)
            running = {follower for follower in running if not follower.done()}
        stop.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOP_WITHIN)
        for follower in running:
            follower.cancel()  # what its task has not committed is undone by the next start

    async def _one(self, partition: int, jobs: Jobs) -> None:
        wake = Wake(self._connection, partition, secrets.token_hex(6))
        if self._settings.standby:
            await self._stand_by(partition, jobs, wake)
        else:
            await self._follower(partition, jobs, wake).run(self._stop)
        await wake.close()

    async def _stand_by(self, partition: int, jobs: Jobs, wake: Wake) -> None:
        """Own the partition whenever nobody else does, until told to stop."""
        silence = self._settings.takeover_after.total_seconds()
        loop = asyncio.get_running_loop()
        standby = Standby(self._connection, partition, silence, loop.time)
        while (revision := await unless(self._stop, standby.wait(self._stop))) is not None:
            try:
                await self._follower(partition, jobs, wake).run(self._stop, revision)
            except FencedError as error:
                logger.warning("%s, and stands by again", error)

    def _follower(self, partition: int, jobs: Jobs, wake: Wake) -> Follower:
        settings = self._settings
        ledger = Ledger(
            self._connection,
            partition,
            self._owner,
            Folders(settings.output, settings.state, partition),
            self._presence.address,
        )
        return Follower(
            partition,
            self._connection,
            jobs,
            ledger,
            wake,
            _pace(settings, _slots(settings.master, len(self._turns))),
            _now,
            self._tidier.closed,
            self._turns[partition],
        )

    def _turn(self) -> None:
        logger.info("told by SIGUSR1 to close the files of all partitions")
        for turns in self._turns.values():
            turns.asked.set()

    def _destination(self) -> Destination:
        settings = self._settings
        return Destination(
            settings.output.absolute(),
            settings.state.absolute(),
            settings.rotate_size,
            settings.server,
            settings.rotate_every,
            settings.access.absolute(Path.cwd()),
            settings.time_zone,
            settings.path_template,
            settings.permissions,
        )


def _slots(master: str, partitions: int) -> int:
    """Return how many partitions are received at once: each has a worker of its own, as far as memory allows."""
    return min(partitions, _MOST_WORKERS) if is_local(master) else partitions


def _pace(settings: ReceiverSettings, slots: int) -> Pace:
    pull = max(min(LARGEST_PULL, _IN_HAND // (2 * slots)), _LEAST_PULL)
    linger = settings.linger.total_seconds()
    stay = Stay(_STAY) if settings.once else Stay(_STAY, _SILENCE, linger)
    return Pace(settings.max_batch, pull, stay, settings.once)


def _order(settings: ReceiverSettings) -> Order:
    age = settings.keep_age // timedelta(microseconds=1) * 1000
    limits = Limits(settings.keep, age, settings.keep_bytes)
    return Order(settings.output, settings.state, settings.compress, limits)


def _check_folders(settings: ReceiverSettings) -> None:
    for folder in (settings.output, settings.state):
        try:
            make_folder(folder, settings.permissions)
        except OSError as error:
            raise OperatorError(
                f"cannot use {folder}: {error.strerror}; choose --output and --state-dir"
            ) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OperatorError(
                f"cannot write to {folder}: permission denied; choose --output and --state-dir"
            )


def _count(value: bytes) -> int:
    if not value.isdigit():
        raise ConfigurationError(
            f"key {PARTITIONS_KEY} of bucket {CONFIG_BUCKET} is {value[:40]!r}, no number; run `logbroker apply`"
        )
    return int(value)


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the clock that everything below is given
