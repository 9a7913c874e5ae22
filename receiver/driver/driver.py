"""All partitions of one receiver: a supervisor for each. A lost partition ends no other."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from nats_logship.app.exits import ConfigurationError, FencedError, pick_error
from nats_logship.app.text import format_count, format_ranges
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout
from receiver.consume.assignment import Assignment, Destination, MarkedFolder, Report
from receiver.consume.claim import StreamStates, TakenOver
from receiver.driver.from_settings import (
    make_calendar,
    make_claim,
    make_destination,
    make_limits,
    make_segment_policy,
)
from receiver.driver.partitions import find_partitions, require_sound
from receiver.driver.slot import Shared, Slot
from receiver.driver.standby import ReceiverPresence
from receiver.driver.stopping import run_unless_stopped
from receiver.driver.supervisor import PartitionSupervisor
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from receiver.storage.damage import Damaged, Misplaced, describe_damage
from receiver.storage.segments import SegmentCleaner, lower_priority

_STOP_WITHIN = 7.0  # seconds for the batches under way: the whole end has ten
_CHECK_EVERY = 10.0  # seconds between checks of the number of partitions
_CLEAN_EVERY = 60.0  # seconds: segments age though nothing is closed

logger = logging.getLogger(__name__)


@dataclass
class Driver:
    """Supervises the partitions of one receiver, which offsets in KV name by its `owner`.

    `run_job` runs a task; it is called in threads, once for each of the `slots` at a time, which
    `use_slots` may reduce.
    """

    settings: ReceiverSettings
    connection: Connection
    owner: str
    meter: Meter
    folders: tuple[MarkedFolder, ...]
    run_job: Callable[[Destination, Sequence[Assignment]], Sequence[Report]]
    slots: int
    _layout: StreamLayout = StreamLayout(0)  # noqa: RUF009 - a frozen value
    _is_ending: bool = False
    _supervised: dict[int, tuple[PartitionSupervisor, asyncio.Task[None]]] = field(
        default_factory=dict
    )
    _lost: str = ""
    _damaged: list[Damaged] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(self.slots, "job")
        slots = [Slot(self.connection, self._run_task, self._threads) for _ in range(self.slots)]
        self._shared = Shared(
            connection=self.connection,
            slots=slots,
            clock=self.meter.clock,
            calendar=make_calendar(self.settings),
            limits=make_limits(self.settings, 1),
            usable=self.slots,
        )
        self._states = StreamStates(self.connection)
        self._presence = ReceiverPresence(self.connection, self.meter.report)
        self._cleaner = SegmentCleaner(make_segment_policy(self.settings), self.meter.clock)

    async def run(
        self,
        layout: StreamLayout,
        existing: int,
        stop: asyncio.Event,
        *background: Coroutine[None, None, None],
    ) -> None:
        """Receive the wanted partitions of those `existing`, until none is left or `stop` is set.

        `background` coroutines run meanwhile. A reason that only a person can remove blocks its
        partition; with --once it raises `ConfigurationError` at the end. A misplaced store or file
        ends all partitions. Raises `FencedError` if none is left, and one was lost.
        """
        done, closed = asyncio.Event(), self._shared.closed
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(clean_segments(self._cleaner, closed, done, stop))
                tasks = [group.create_task(one) for one in background]
                await run_unless_stopped(stop, self._presence.start())
                self._supervise(layout, existing, group)
                tasks.append(group.create_task(self._presence.keep_answering()))
                tasks.append(group.create_task(self._watch_partitions(group)))
                await self._wait_until_ended(stop)
                done.set()
                closed.set()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise pick_error(errors) from None
        finally:  # nobody waits for a job that still runs
            self._threads.shutdown(wait=False, cancel_futures=True)

    def change(self, settings: ReceiverSettings) -> None:
        """Follow other settings, from the next tasks on."""
        self.settings = settings
        self._cleaner.policy = make_segment_policy(settings)
        self._shared.limits = make_limits(settings, len(self._running()))

    def use_slots(self, count: int) -> None:
        """Have so many of the slots used, at least one: Spark runs as many tasks at once."""
        self._shared.use_slots(count)

    def close_files(self) -> None:
        """Have the live files of every partition closed."""
        logger.info("SIGUSR1: closing the files of all partitions")
        for supervisor, _ in self._supervised.values():
            supervisor.timer.asked.set()

    def _supervise(self, layout: StreamLayout, existing: int, group: asyncio.TaskGroup) -> None:
        """Start supervisors for the wanted partitions that have none yet.

        Raises `ConfigurationError` for a wanted partition that does not exist.
        """
        wanted = self.settings.select_partitions(existing)
        if self._is_ending:
            return
        if self._layout.partitions not in {0, layout.partitions}:
            logger.warning(
                "the broker now has %s, it had %d; make sure that each has a receiver",
                format_count(layout.partitions, "partition"),
                self._layout.partitions,
            )
        self._layout = layout
        if new := [number for number in wanted if number not in self._supervised]:
            noun = "partition" if len(wanted) == 1 else "partitions"
            numbers, output = format_ranges(wanted), self.settings.output
            logger.info("receiving %s %s into %s", noun, numbers, output)
        for number in new:
            claim = make_claim(self.settings, layout, number, self.connection)
            claim.owner, claim.presence = self.owner, self._presence.address
            claim.states = self._states
            index, meter = len(self._supervised), self.meter.expect(number)
            supervisor = PartitionSupervisor(self._shared, claim, meter, index)
            task = group.create_task(self._run_supervisor(number, supervisor))
            self._supervised[number] = supervisor, task
        self.change(self.settings)

    async def _watch_partitions(self, group: asyncio.TaskGroup) -> None:
        """Supervise new partitions as their number grows; never returns."""
        while True:
            await asyncio.sleep(_CHECK_EVERY)
            with suppress(ConnectionLost, Rejected, ConfigurationError):
                if found := await find_partitions(self.connection):
                    self._supervise(*found, group)

    async def _wait_until_ended(self, stop: asyncio.Event) -> None:
        """Wait until no supervisor runs; after a stop for some seconds; raises `FencedError`."""
        while running := self._running():
            if stop.is_set():
                break
            first = asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            await run_unless_stopped(stop, first)
        self._end_batches()
        if running := self._running():
            _, running = await asyncio.wait(running, timeout=_STOP_WITHIN)
        if running:
            partitions = format_count(len(running), "partition")
            logger.warning(
                "%s did not come to the end of a batch; the next start does it again", partitions
            )
        for task in running:
            task.cancel()
        if not stop.is_set():
            self._raise_troubles()
        head = "stopped: received" if stop.is_set() else "received"
        logger.info("%s %s; %s", head, self._describe_lines(), self._describe_rest())

    def _describe_lines(self) -> str:
        meters = self.meter.sorted_partitions
        lines, size = sum(one.lines for one in meters), sum(one.bytes for one in meters)
        return f"{format_count(lines, 'line', form=',')}, {format_size(size)}"

    def _describe_rest(self) -> str:
        """Return what waits in the stream, of partitions that this receiver owned to the end."""
        owned = [
            one.left
            for number, (one, _) in self._supervised.items()
            if one.claim.offset and not self.meter.expect(number).successor
        ]
        if not owned:
            return "it owned no partition"
        if None in owned:
            return "the next start goes on behind what is committed"
        if left := sum(filter(None, owned)):
            return f"{format_count(left, 'message', 'wait', form=',')} in the stream"
        return "all is committed, nothing waits"

    def _end_batches(self) -> None:
        self._is_ending = True
        for supervisor, _ in self._supervised.values():
            supervisor.stop.set()
        for slot in self._shared.slots:
            slot.close()

    def _raise_troubles(self) -> None:
        if self._damaged:
            raise ConfigurationError(describe_damage(self._damaged))
        if self._lost:
            raise FencedError(self._lost)

    def _running(self) -> "set[asyncio.Task[None]]":
        return {task for _, task in self._supervised.values() if not task.done()}

    async def _run_supervisor(self, number: int, supervisor: PartitionSupervisor) -> None:
        """Run a supervisor; if its partition is lost, the other partitions go on."""
        try:
            await supervisor.run()
        except FencedError as error:
            self._note_lost(number, error)
        except Misplaced:
            unclaimed = (n for n, (one, _) in self._supervised.items() if one.claim.offset is None)
            await require_sound(self.settings, self.connection, self._layout, unclaimed)
            raise
        except Damaged as error:  # with --once: raised when the other partitions are received
            self._damaged.append(error)
        await supervisor.wake.close()

    def _note_lost(self, number: int, error: FencedError) -> None:
        # no advice for a partition that another receiver owns: it must not be taken back
        by, advice = f"hand: {error}", "; start it again to go on from there"
        if isinstance(error, TakenOver):
            by, advice = error.owner, ""
        self.meter.expect(number).note_released(successor=f"{by}{advice}")
        self._lost = f"{error}; this receiver stops{advice}"
        if len(self._running()) > 1:
            logger.error("%s; this one goes on with its others%s", error, advice)

    def _run_task(self, assignments: Sequence[Assignment]) -> Sequence[Report]:
        # settings and the number of partitions may have changed since the last task
        destination = make_destination(self.settings, self.folders, self._layout)
        return self.run_job(destination, assignments)


async def clean_segments(
    cleaner: SegmentCleaner, closed: asyncio.Event, done: asyncio.Event, stop: asyncio.Event
) -> None:
    """Compress and delete closed segments: whenever some were `closed`, and every minute.

    Works in a thread of low priority. Runs once more after `done` is set, and returns. With `stop`
    set it compresses no more.
    """
    is_over, thread = threading.Event(), ThreadPoolExecutor(1, "retention", lower_priority)
    loop = asyncio.get_running_loop()
    try:
        while True:
            is_last = done.is_set()
            closed.clear()
            await loop.run_in_executor(
                thread, cleaner.clean, lambda: is_over.is_set() or stop.is_set()
            )
            if is_last:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _CLEAN_EVERY)
    finally:
        is_over.set()
        thread.shutdown()
