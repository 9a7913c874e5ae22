"""All partitions of one receiver: each is followed by itself, and one that is lost to another receiver ends no other.

What settings mean for tasks and retention is said here, as values of no type that a Spark worker would not have.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from nats_logship.app.exits import ConfigurationError, FencedError, OperatorError, pick_error
from nats_logship.app.text import format_count
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import StreamLayout
from receiver.consume.assignment import (
    LARGEST_PULL,
    Assignment,
    Destination,
    MarkedFolder,
    Report,
    SessionLimits,
)
from receiver.consume.claim import Claim, TakenOver
from receiver.driver.partitions import find_partitions
from receiver.driver.presence import Presence, describe_owners, find_live_owner, run_unless_stopped
from receiver.driver.supervisor import PartitionSupervisor, Shared, TaskLimits
from receiver.meter import Meter
from receiver.settings import ReceiverSettings
from receiver.storage.damage import Damaged, Misplaced, describe_damage
from receiver.storage.layout import Layout
from receiver.storage.partition_folders import PartitionFolders
from receiver.storage.rotation import Calendar, load_zone
from receiver.storage.segments import Limits, SegmentCleaner, SegmentPolicy, lower_priority

_IN_HAND = 64 * 1024 * 1024
"""Bytes that all tasks of a machine hold at once: a pull being written, another under way."""
_LEAST_PULL = 1024 * 1024  # bytes
_LONGEST, _SILENCE, _TELLING = 60.0, 10.0, 4.0  # seconds that a task runs
_LINGER = 0.025  # seconds between small pulls
_GATHER = 0.1  # seconds from the first small pull to the commit
_STOP_WITHIN = 7.0  # seconds for the batches under way, so that all ends within ten
_RETAIN_EVERY = 60.0  # seconds
_LOOK = 10.0  # seconds between looks at the number of partitions

logger = logging.getLogger(__name__)


@dataclass
class Driver:
    """The followers of one receiver, which KV knows by the name `owner`; `run_job` runs a task in a thread, `slots` at once."""

    settings: ReceiverSettings
    connection: Connection
    owner: str
    meter: Meter
    folders: tuple[MarkedFolder, ...]
    run_job: Callable[[Destination, Assignment], Report]
    slots: int
    _layout: StreamLayout = StreamLayout(0)  # noqa: RUF009 - a frozen value
    _is_ending: bool = False
    _followed: dict[int, tuple[PartitionSupervisor, asyncio.Task[None]]] = field(
        default_factory=dict
    )
    _lost: str = ""
    _damaged: list[Damaged] = field(default_factory=list)

    def __post_init__(self) -> None:
        threads = ThreadPoolExecutor(self.slots, "job")
        calendar, clock = make_calendar(self.settings), self.meter.clock
        limits = make_limits(self.settings, self.slots, self.slots)
        self._shared = Shared(self.connection, self._run, threads, clock, calendar, limits)
        self._presence = Presence(self.connection, self.meter.report)
        self._retention = SegmentCleaner(make_order(self.settings), clock)

    async def run(
        self,
        layout: StreamLayout,
        existing: int,
        stop: asyncio.Event,
        *background: Coroutine[None, None, None],
    ) -> None:
        """Follow the partitions that are wanted, of those `existing`, until none is left, or told to stop; `background` runs as long.

        What only a person can mend blocks its partition; with --once it raises `ConfigurationError`
        in the end. Store or files that are misplaced end all of them. Raises `FencedError` when a
        partition was lost and none is left.
        """
        done, closed = asyncio.Event(), self._shared.closed
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(retain(self._retention, closed, done, stop))
                tasks = [group.create_task(one) for one in background]
                await run_unless_stopped(stop, self._presence.begin())
                self._follow(layout, existing, group)
                more = self._presence.last(), self._follow_changes(group)
                tasks += [group.create_task(one) for one in more]
                await self._until_ended(stop)
                done.set()
                closed.set()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise pick_error(errors) from None
        finally:  # a job that still runs goes on without anybody who waits for it
            self._shared.threads.shutdown(wait=False, cancel_futures=True)

    def _follow(self, layout: StreamLayout, existing: int, group: asyncio.TaskGroup) -> None:
        """Follow partitions from now on, except those that were followed before; raises `ConfigurationError` for one that is not there."""
        wanted = self.settings.select_partitions(existing)
        if self._is_ending:
            return
        if self._layout.partitions not in {0, layout.partitions}:
            logger.warning(
                "the broker has %s by now, it had %d; see to it that each has a receiver",
                *(format_count(layout.partitions, "partition"), self._layout.partitions),
            )
        self._layout = layout
        if new := [number for number in wanted if number not in self._followed]:
            numbers, output = ", ".join(map(str, wanted)), self.settings.output
            logger.info("receiving partitions %s into %s", numbers, output)
        for number in new:
            claim = make_claim(self.settings, layout, number, self.connection)
            claim.owner, claim.presence = self.owner, self._presence.address
            follower = PartitionSupervisor(self._shared, claim, self.meter.expect(number))
            self._followed[number] = follower, group.create_task(self._one(number, follower))
        self.change(self.settings)

    async def _follow_changes(self, group: asyncio.TaskGroup) -> None:
        """Follow the partitions that there are, as their number changes; never returns."""
        while True:
            await asyncio.sleep(_LOOK)
            with suppress(ConnectionLost, Rejected, ConfigurationError):
                if found := await find_partitions(self.connection):
                    self._follow(*found, group)

    def change(self, settings: ReceiverSettings) -> None:
        """Go by other settings from the next tasks on."""
        self.settings = settings
        self._retention.order = make_order(settings)
        self._shared.limits = make_limits(settings, len(self._running()), self.slots)

    def close_files(self) -> None:
        """Have the live files of every partition closed."""
        logger.info("told by SIGUSR1 to close the files of all partitions")
        for follower, _ in self._followed.values():
            follower.timer.asked.set()

    async def _until_ended(self, stop: asyncio.Event) -> None:
        """Wait until no partition is left to follow; once told to stop, no longer than the bound; raises `FencedError`."""
        while self._running() and not stop.is_set():
            await run_unless_stopped(
                stop, asyncio.wait(self._running(), return_when=asyncio.FIRST_COMPLETED)
            )
        self._is_ending = True
        for follower, _ in self._followed.values():
            follower.stop.set()
        if running := self._running():
            _, running = await asyncio.wait(running, timeout=_STOP_WITHIN)
        if running:
            words = "%s did not come to the end of a batch; the next start does it again"
            logger.warning(words, format_count(len(running), "partition"))
        for task in running:
            task.cancel()
        if self._damaged and not stop.is_set():
            raise ConfigurationError(describe_damage(self._damaged))
        if self._lost and not stop.is_set():
            raise FencedError(self._lost)

    def _running(self) -> "set[asyncio.Task[None]]":
        return {task for _, task in self._followed.values() if not task.done()}

    async def _one(self, number: int, follower: PartitionSupervisor) -> None:
        """Follow a partition; where it is lost, the others go on, and the program's last line tells of the last one."""
        try:
            await follower.run()
        except FencedError as error:
            # one that another receiver has is not to be taken back
            by, advice = f"hand: {error}", "; start it again to go on from there"
            if isinstance(error, TakenOver):
                by, advice = error.owner, ""
            self.meter.expect(number).note_released(successor=f"{by}{advice}")
            self._lost = f"{error}; this receiver stops{advice}"
            if len(self._running()) > 1:
                logger.error("%s; this one goes on with its others%s", error, advice)  # noqa: TRY400 - no defect
        except Misplaced:
            waiting = (n for n, (one, _) in self._followed.items() if one.claim.offset is None)
            await require_sound(self.settings, self.connection, self._layout, waiting)
            raise
        except Damaged as error:  # with --once: the others are received, then it is told
            self._damaged.append(error)
        await follower.wake.close()

    def _run(self, assignment: Assignment) -> Report:
        # settings and the number of partitions may have changed since the last task
        destination = make_destination(self.settings, self.folders, self._layout)
        return self.run_job(destination, assignment)


async def require_sound(
    settings: ReceiverSettings, connection: Connection, layout: StreamLayout, numbers: Iterable[int]
) -> None:
    """Raise one error for all partitions that a person has to decide about before they are claimed.

    Where some can be received, and nothing is misplaced, the others are blocked when they are
    claimed. What cannot be asked now is found then, too.
    """

    async def examine(number: int) -> Damaged | None:
        try:
            with suppress(ConnectionLost, Rejected):
                now = datetime.now(UTC)  # noqa: TID251 - of an entry that is never written
                await make_claim(settings, layout, number, connection).examine(now)
        except Damaged as error:
            return error
        return None

    found = await asyncio.gather(*map(examine, numbers))
    errors = [error for error in found if error]
    is_misplaced = any(isinstance(one, Misplaced) for one in errors)
    if errors and (is_misplaced or len(errors) == len(found)):
        raise ConfigurationError(describe_damage(errors))


async def require_unused(
    settings: ReceiverSettings, connection: Connection, layout: StreamLayout, numbers: Iterable[int]
) -> None:
    """Raise `OperatorError` for partitions of running receivers, unless told to take over.

    What cannot be asked now is asked again by who claims.
    """
    if not settings.once or settings.take_over:
        return

    async def owner_of(number: int) -> str:
        with suppress(ConnectionLost, Rejected):
            return (await find_live_owner(make_claim(settings, layout, number, connection)))[0]
        return ""

    numbers = list(numbers)
    found = await asyncio.gather(*map(owner_of, numbers))
    if owners := {number: one for number, one in zip(numbers, found, strict=True) if one}:
        raise OperatorError(describe_owners(owners))


def make_claim(
    settings: ReceiverSettings, layout: StreamLayout, number: int, connection: Connection
) -> Claim:
    """Return the claim of a partition, which nobody has made yet."""
    at = settings.output, settings.state, number, settings.path_template, layout.partitions
    return Claim(connection, number, "", layout.stream_of(number), PartitionFolders(*at))


async def retain(
    retention: SegmentCleaner, closed: asyncio.Event, done: asyncio.Event, stop: asyncio.Event
) -> None:
    """Look after closed segments in a thread of low priority: when some were `closed`, and every minute, since age passes by itself.

    Returns after the look that follows `done`; `stop` is set when there is no time left to compress what was closed.
    """
    is_over, thread = threading.Event(), ThreadPoolExecutor(1, "retention", lower_priority)
    loop = asyncio.get_running_loop()
    try:
        while True:
            is_last = done.is_set()
            closed.clear()
            await loop.run_in_executor(
                thread, retention.clean, lambda: is_over.is_set() or stop.is_set()
            )
            if is_last:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _RETAIN_EVERY)
    finally:
        is_over.set()
        thread.shutdown()


def make_destination(
    settings: ReceiverSettings, folders: tuple[MarkedFolder, ...], layout: StreamLayout
) -> Destination:
    """Return where and how tasks write; of no type that a worker would not have."""
    return Destination(
        settings.output.absolute(),
        settings.state.absolute(),
        int(settings.rotate_size),
        settings.server,
        settings.rotate_every,
        settings.access,
        settings.time_zone,
        settings.path_template,
        settings.permissions,
        folders,
        layout.partitions,
        layout.streams,
    )


def make_limits(settings: ReceiverSettings, partitions: int, slots: int) -> TaskLimits:
    """Return how long tasks are to run, of so many partitions of which so many have a slot at once."""
    at_once = max(min(partitions, slots), 1)
    pull = max(min(LARGEST_PULL, _IN_HAND // (2 * at_once)), _LEAST_PULL)
    longest = _LONGEST if at_once >= partitions else _TELLING  # else others wait for its slot
    session = SessionLimits(longest, min(_SILENCE, longest), _LINGER, _GATHER, _TELLING)
    if settings.once:
        session = SessionLimits(_TELLING)
    may_take_over = settings.take_over or not settings.once
    standby = settings.takeover_after.total_seconds() if settings.standby else None
    return TaskLimits(int(settings.max_batch), pull, session, settings.once, may_take_over, standby)


def make_order(settings: ReceiverSettings) -> SegmentPolicy:
    """Return what is wanted of closed segments."""
    age = settings.keep_age // timedelta(microseconds=1) * 1000
    limits = Limits(settings.keep, age, settings.keep_bytes)
    layout = Layout(settings.path_template)
    return SegmentPolicy(settings.output, settings.state, settings.compress, limits, layout)


def make_calendar(settings: ReceiverSettings) -> Calendar:
    """Return the calendar that silent files are closed by: where there is a file a day, at midnight at the latest."""
    every, day = settings.rotate_every, timedelta(days=1)
    if Layout(settings.path_template).has_date:
        every = min(every or day, day)
    return Calendar(every, load_zone(settings.time_zone))
