"""All partitions of one receiver: each is followed by itself, and one that is lost to another receiver ends no other."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from broker.app.exits import FencedError
from broker.client.connection import Connection
from broker.wire.streams import StreamLayout
from receiver.consume.assignment import Assignment, Destination, Place
from receiver.consume.claim import Claim, TakenOver
from receiver.consume.outcome import Report
from receiver.consume.wake import Wake
from receiver.driver.follower import Follower, Pace
from receiver.driver.jobs import Jobs
from receiver.driver.orders import calendar_of, destination_of, pace_of
from receiver.driver.patience import unless
from receiver.driver.presence import Presence
from receiver.driver.retention import RetentionWorker
from receiver.driver.standby import Standby
from receiver.driver.turns import Turns
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from receiver.storage.site import Site

__all__ = ["Followers", "Shared"]

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

    turns: Turns
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    follower: Follower | None = None
    task: "asyncio.Task[None] | None" = None


class Followers:
    """The followers of a receiver."""

    def __init__(
        self,
        shared: Shared,
        settings: ReceiverSettings,
        places: tuple[Place, ...],
        run_job: Callable[[Destination, Assignment], Report],
        slots: int,
    ) -> None:
        """Follow nothing yet."""
        self._shared = shared
        self._settings = settings
        self._places = places
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
                followed = self._followed[number] = _Partition(Turns(calendar, self._shared.clock))
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
            followed.turns.asked.set()

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
        self, partition: int, stop: asyncio.Event, make: Callable[[], Follower]
    ) -> None:
        """Own the partition whenever nobody else does, until told to stop."""
        standby = Standby(
            self._shared.connection,
            partition,
            self._settings.takeover_after.total_seconds(),
            asyncio.get_running_loop().time,
            partial(self._shared.meter.standing_by, partition),
        )
        while (revision := await unless(stop, standby.wait(stop))) is not None:
            try:
                await make().run(stop, revision)
            except FencedError as error:
                logger.warning("%s; it stands by again", error)

    def _follower(self, partition: int, followed: _Partition, wake: Wake) -> Follower:
        settings, shared = self._settings, self._shared
        count = self._layout.partitions
        site = Site(settings.output, settings.state, partition, settings.path_template, count)
        stream, presence = self._layout.stream_of(partition), shared.presence.address
        claim = Claim(shared.connection, partition, shared.owner, stream, site, presence)
        followed.follower = Follower(
            partition,
            shared.connection,
            self._jobs,
            claim,
            wake,
            self._pace(),
            shared.meter,
            lambda: datetime.fromtimestamp(shared.clock() / 1e9, UTC),
            shared.retention.closed,
            followed.turns,
        )
        return followed.follower

    def _pace(self) -> Pace:
        return pace_of(self._settings, len(self._followed))

    def _run(self, assignment: Assignment) -> Report:
        # settings and the number of partitions may have changed since the last task
        destination = destination_of(self._settings, self._places, self._layout)
        return self._run_job(destination, assignment)


def _advice(error: FencedError) -> str:
    """Return what to do about a lost partition; one that another receiver has is not to be taken back."""
    return "" if isinstance(error, TakenOver) else "; start it again to go on from there"
