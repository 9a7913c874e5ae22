"""All partitions of one receiver: each is followed by itself, and one that is lost to another receiver ends no other.

What settings mean for those who do the work is said here: where tasks write and how long they run, what becomes of closed
segments. These are values of no type that a Spark worker would not have.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.streams import StreamLayout
from receiver.consume.assignment import (
    LARGEST_PULL,
    Assignment,
    Destination,
    MarkedFolder,
    Report,
    SessionLimits,
)
from receiver.consume.claim import Claim, TakenOver
from receiver.consume.wake import Wake
from receiver.driver.follower import Pace, PartitionFollower, RotationTimer
from receiver.driver.jobs import Jobs, unless
from receiver.driver.presence import Presence, Standby
from receiver.driver.retention import RetentionWorker
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from receiver.spark.session import is_local
from receiver.storage.layout import Layout
from receiver.storage.retention import Limits, Order
from receiver.storage.rotation import Calendar
from receiver.storage.site import Site
from receiver.zones import named_zone

__all__ = [
    "AT_ONCE",
    "Followers",
    "Shared",
    "destination_of",
    "order_of",
    "pace_of",
    "slots_for",
]

_MOST_WORKERS = 16  # of some 21 MiB each, beside 260 for the driver and its JVM
_IN_HAND = (
    64 * 1024 * 1024
)  # bytes that all tasks of a machine hold at once: a pull being written, another under way
_LEAST_PULL = 1024 * 1024  # bytes
_LONGEST, _SILENCE, _TELLING = 20.0, 5.0, 4.0  # seconds that a task runs
_LINGER = 0.05  # seconds between the beginnings of small batches

AT_ONCE = frozenset(
    {
        "compress",
        "keep",
        "keep_age",
        "keep_bytes",
        "log_format",
        "log_level",
        "max_batch",
        "rotate_size",
    }
)
"""The settings that a running receiver can change; its next tasks go by them."""

_STOP_WITHIN = 7.0  # seconds for the batches under way, so that all ends within ten
_ALONE = (
    "only one receiver may own it, so start this one without it, or end the other and start this one "
    "again"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all partitions of a receiver share; `clock` is nanoseconds since the epoch."""

    connection: Connection
    owner: str
    presence: Presence
    meter: Meter
    retention: RetentionWorker
    clock: Callable[[], int]


@dataclass(slots=True)
class _Partition:
    """A partition that is followed until `stop` is set; there is no `follower` while it is waited for."""

    timer: RotationTimer
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    follower: PartitionFollower | None = None
    task: "asyncio.Task[None] | None" = None


class Followers:
    """The followers of a receiver."""

    def __init__(
        self,
        shared: Shared,
        settings: ReceiverSettings,
        folders: tuple[MarkedFolder, ...],
        run_job: Callable[[Destination, Assignment], Report],
        slots: int,
    ) -> None:
        """Follow nothing yet."""
        self._shared = shared
        self._settings = settings
        self._folders = folders
        self._run_job = run_job
        self._jobs = Jobs(self._run, slots)
        self._layout = StreamLayout(0)
        self._wanted: list[int] = []
        self._is_ending = False
        self._followed: dict[int, _Partition] = {}
        self._lost: dict[int, FencedError] = {}

    def follow(
        self, partitions: Iterable[int], layout: StreamLayout, group: asyncio.TaskGroup
    ) -> None:
        """Follow these partitions, of those that there are, from now on, except those that were lost.

        A partition that is not among them any more ends at the end of its batch. `group` runs the followers, so that what
        only a person can mend ends all of them.
        """
        if self._is_ending:
            return
        self._layout = layout
        self._wanted = [number for number in partitions if number not in self._lost]
        for number, followed in self._followed.items():
            if number not in self._wanted:
                followed.stop.set()
        for number in self._wanted:
            if number not in self._followed:
                self._shared.meter.expect(number)
                calendar = calendar_of(self._settings)
                followed = self._followed[number] = _Partition(
                    RotationTimer(calendar, self._shared.clock)
                )
                followed.task = group.create_task(self._one(number, followed))
        self._set_pace()

    async def run(self, stop: asyncio.Event) -> None:
        """Wait until no partition is left to follow; once told to stop, no longer than the bound.

        Raises `FencedError` when a partition was lost and none is left.
        """
        stopped = asyncio.ensure_future(stop.wait())
        while (running := self._running()) and not stopped.done():
            await asyncio.wait({*running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        await self._end()
        if self._lost and not stop.is_set():
            *_, last = self._lost.values()
            raise FencedError(f"{last}; this receiver stops{_advice(last)}")

    def _running(self) -> "set[asyncio.Task[None]]":
        tasks = [followed.task for followed in self._followed.values()]
        return {task for task in tasks if task is not None and not task.done()}

    async def _end(self) -> None:
        self._is_ending = True
        for followed in self._followed.values():
            followed.stop.set()
        if running := self._running():
            _, running = await asyncio.wait(running, timeout=_STOP_WITHIN)
        if running:
            logger.warning(
                "%d partitions did not come to the end of a batch; the next start does it again",
                len(running),
            )
        for task in running:
            task.cancel()

    def close(self) -> None:
        """Let go of what ran the tasks."""
        self._jobs.close()

    def close_files(self) -> None:
        """Have the live files of every partition closed."""
        for followed in self._followed.values():
            followed.timer.asked.set()

    def change(self, settings: ReceiverSettings) -> None:
        """Go by other settings from the next tasks on."""
        self._settings = settings
        self._set_pace()

    def _set_pace(self) -> None:
        for followed in self._followed.values():
            if followed.follower is not None:
                followed.follower.pace = self._pace()

    async def _one(self, partition: int, followed: _Partition) -> None:
        stream = self._layout.stream_of(partition)
        wake = Wake(self._shared.connection, partition, stream)
        make = partial(self._follower, partition, followed, wake)
        try:
            if self._settings.standby:
                await self._stand_by(partition, followed.stop, make)
            else:
                await make().run(followed.stop)
        except FencedError as error:
            self._lose(partition, error)
        else:
            if followed.stop.is_set():  # else all of it is received, and nobody is to begin again
                del self._followed[partition]
            if partition not in self._wanted:
                self._shared.meter.forget(partition)
        await wake.close()

    def _lose(self, partition: int, error: FencedError) -> None:
        """Go on without a partition, which is logged; of the last one the program's last line tells."""
        del self._followed[partition]
        self._lost[partition] = error
        by = f"{error.owner}: {_ALONE}" if isinstance(error, TakenOver) else f"hand: {error}"
        self._shared.meter.lost(partition, f"{by}{_advice(error)}")
        if self._running():
            logger.error("%s; this one goes on with its others%s", error, _advice(error))

    async def _stand_by(
        self, partition: int, stop: asyncio.Event, make: Callable[[], PartitionFollower]
    ) -> None:
        """Own the partition whenever nobody else does, until told to stop."""
        standby = Standby(
            self._shared.connection,
            partition,
            self._settings.takeover_after.total_seconds(),
            partial(self._shared.meter.standing_by, partition),
        )
        while (revision := await unless(stop, standby.wait(stop))) is not None:
            try:
                await make().run(stop, revision)
            except FencedError as error:
                logger.warning("%s; it stands by again", error)

    def _follower(self, partition: int, followed: _Partition, wake: Wake) -> PartitionFollower:
        settings, shared = self._settings, self._shared
        count = self._layout.partitions
        site = Site(settings.output, settings.state, partition, settings.path_template, count)
        stream, presence = self._layout.stream_of(partition), shared.presence.address
        claim = Claim(shared.connection, partition, shared.owner, stream, site, presence)
        followed.follower = PartitionFollower(
            partition,
            shared.connection,
            self._jobs,
            claim,
            wake,
            self._pace(),
            shared.meter,
            lambda: datetime.fromtimestamp(shared.clock() / 1e9, UTC),
            shared.retention.wanted,
            followed.timer,
        )
        return followed.follower

    def _pace(self) -> Pace:
        return pace_of(self._settings, len(self._followed))

    def _run(self, assignment: Assignment) -> Report:
        # settings and the number of partitions may have changed since the last task
        destination = destination_of(self._settings, self._folders, self._layout)
        return self._run_job(destination, assignment)


def _advice(error: FencedError) -> str:
    """Return what to do about a lost partition; one that another receiver has is not to be taken back."""
    return "" if isinstance(error, TakenOver) else "; start it again to go on from there"


def destination_of(
    settings: ReceiverSettings, folders: tuple[MarkedFolder, ...], layout: StreamLayout
) -> Destination:
    """Return where and how tasks write; of no type that a worker would not have."""
    return Destination(
        settings.output.absolute(),
        settings.state.absolute(),
        int(settings.rotate_size),
        settings.server,
        settings.rotate_every,
        settings.access.absolute(Path.cwd()),
        settings.time_zone,
        settings.path_template,
        settings.permissions,
        folders,
        layout.partitions,
        layout.streams,
    )


def slots_for(master: str, partitions: int) -> int:
    """Return how many partitions may be received at once; on this machine each takes a worker, as far as memory allows."""
    return _MOST_WORKERS if is_local(master) else partitions


def pace_of(settings: ReceiverSettings, partitions: int) -> Pace:
    """Return how long tasks are to run, of so many partitions."""
    at_once = min(partitions, slots_for(settings.master, partitions))
    pull = max(min(LARGEST_PULL, _IN_HAND // (2 * at_once)), _LEAST_PULL)
    session = (
        SessionLimits(_TELLING)
        if settings.once
        else SessionLimits(_LONGEST, _SILENCE, _LINGER, _TELLING)
    )
    return Pace(int(settings.max_batch), pull, session, settings.once)


def order_of(settings: ReceiverSettings) -> Order:
    """Return what is wanted of closed segments."""
    age = settings.keep_age // timedelta(microseconds=1) * 1000
    limits = Limits(settings.keep, age, settings.keep_bytes)
    layout = Layout(settings.path_template)
    return Order(settings.output, settings.state, settings.compress, limits, layout)


def calendar_of(settings: ReceiverSettings) -> Calendar:
    """Return the calendar that silent files are closed by: where there is a file a day, at midnight at the latest."""
    every, day = settings.rotate_every, timedelta(days=1)
    if Layout(settings.path_template).has_date:
        every = min(every or day, day)
    return Calendar(every, named_zone(settings.time_zone))
