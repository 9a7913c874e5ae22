"""One partition's loop: wait until there is something, run a task there until nothing comes any more, count what it did; again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf

from broker.app.exits import ConfigurationError, FencedError, OperatorError
from broker.app.faults import fault
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.subjects import consumer_name
from receiver.consume.assignment import (
    Assignment,
    Blocked,
    Cause,
    Ending,
    ForcedRotation,
    Report,
    SessionLimits,
    Superseded,
)
from receiver.consume.claim import Claim, TakenOver
from receiver.consume.offsets import StreamMismatch, StreamRestored
from receiver.consume.wake import Wake
from receiver.driver.jobs import Jobs, unless
from receiver.meter import Meter
from receiver.storage.rotation import Calendar

__all__ = ["Pace", "PartitionFollower", "RotationTimer"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts of a blocked partition
_BRISK_PAUSE = 2.0  # seconds; where what blocks it passes by itself
_CHECK, _LOOK_AROUND = (
    5.0,
    10.0,
)  # seconds between looks at the stream, and for a successor while nothing comes
_REFUSALS = 3  # after which --once gives up
_ATTEMPTS = {
    Cause.STATE: 1,
    Cause.BROKER: 12,
    Cause.MOVED: 60,
}  # blocked ones; three for any other cause
_RELEASE_PATIENCE = 1.0  # seconds
_VAIN = 3  # tasks that find no line although the wake-up consumer had one; one may, since a line has expired
_INSIST = 0.5  # seconds between requests to a task to leave: it may not hear the first

_GRACE = 2_000_000_000  # nanoseconds that a period's last lines may be late, and clocks differ
_AGAIN = 60_000_000_000  # nanoseconds
_SILENCE = 2.0  # seconds
_LONGEST_LOOK = 60.0  # seconds between looks at the clock, which may be set meanwhile

_LEAVE = "logship.leave"  # the subjects on which tasks are asked to leave

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How large batches are, `limit` and `pull` in bytes, and how long tasks run.

    With `once` a follower ends when nothing is left. A task that has not reported `patience` seconds after its time is
    reported as blocked.
    """

    limit: int
    pull: int
    session: SessionLimits
    once: bool
    patience: float = 60.0


class RotationTimer:
    """When the live files of one partition that gets no lines are closed: once after every period, and whenever somebody asks.

    The clock closes files only where nothing comes: while lines come, they rotate their own files, and those of yesterday may
    still be on their way.
    """

    def __init__(self, calendar: Calendar, clock: Callable[[], int]) -> None:
        """Wait for nothing yet; `clock` gives nanoseconds since the epoch."""
        self._calendar = calendar
        self._clock = clock
        self._until = 0
        self._next = ForcedRotation.DUE
        self.asked = asyncio.Event()
        """Set as long as somebody waits for every file to be turned, at the next batch boundary."""

    @property
    def is_due(self) -> bool:
        """Say whether the period is over in which files were turned last."""
        return self._clock() >= self._until

    def left(self) -> float:
        """Return after how many seconds of silence files are to be closed; the clock is to be looked at again then."""
        seconds = (self._until - self._clock()) / 1e9
        return float(min(max(seconds, _SILENCE), _LONGEST_LOOK))

    def take(self, *, is_silent: bool) -> ForcedRotation:
        """Return what is to be done now, once; by the clock only when the partition is silent."""
        if self.asked.is_set():
            self.asked.clear()
            return ForcedRotation.ALL
        if not self.is_due or not (is_silent or self._next is ForcedRotation.ALL):
            return ForcedRotation.NONE
        rotation, self._next = self._next, ForcedRotation.DUE
        self._until = self._calendar.period(self._clock() - _GRACE).end + _GRACE
        return rotation

    def again(self, rotation: ForcedRotation) -> None:
        """Have what could not be done tried again in a minute; receiving goes on meanwhile."""
        if rotation is not ForcedRotation.NONE:
            self._next, self._until = rotation, self._clock() + _AGAIN


class PartitionFollower:
    """Follows one partition until it is told to stop, or, with `once`, until nothing is left."""

    def __init__(
        self,
        partition: int,
        connection: Connection,
        jobs: Jobs,
        claim: Claim,
        wake: Wake,
        pace: Pace,
        meter: Meter,
        clock: Callable[[], datetime],
        retention: asyncio.Event,
        timer: RotationTimer,
    ) -> None:
        """Take the parts; `retention` is set when a committed batch has closed segments."""
        self._partition = partition
        self._connection = connection
        self._jobs = jobs
        self._claim = claim
        self._wake = wake
        self.pace = pace
        self._meter = meter
        self._clock = clock
        self._retention = retention
        self._timer = timer
        self._is_silent = False
        self._checked: float | None = None
        self._goes_on = self._was_woken = False
        self._vain = 0
        self._fell_silent = -inf
        self._attempts = 0

    async def run(self, stop: asyncio.Event, revision: int | None = None) -> None:
        """Claim the partition and follow it; raises OperatorError for what only a person can mend.

        Raises `TakenOver` when another receiver has claimed it, `FencedError` when a person has moved its offset.
        With a `revision` return at once if the offset is no longer at that: somebody else has claimed it.
        """
        if not await self._patiently(partial(self._claimed, revision), stop):
            return
        while await self._patiently(partial(self._something, stop), stop) and not stop.is_set():
            self._goes_on = await self._run_task(stop)
        await self._release()

    async def _release(self) -> None:
        """Give the partition back, so that a standby need not wait for our silence; a broker that is away is no error."""
        with suppress(ConnectionLost, Rejected, ConfigurationError, TimeoutError):
            async with asyncio.timeout(_RELEASE_PATIENCE):
                await self._claim.release()

    async def _claimed(self, revision: int | None) -> bool:
        offset = await self._claim.claim(self._clock(), revision)
        if offset is None:
            return False
        self._wake.epoch = offset.epoch
        self._goes_on = self._claim.is_unsettled  # so that a task settles it, though nothing comes
        self._meter.claimed(self._partition, offset)
        logger.info(
            "partition %d: from sequence %d, epoch %d", self._partition, offset.next, offset.epoch
        )
        await self._count()
        return True

    async def _count(self) -> None:
        with suppress(ConnectionLost, Rejected):  # that's fine: it is only shown
            self._meter.waiting(self._partition, await self._wake.pending(self._next))

    async def _something(self, stop: asyncio.Event) -> bool:
        """Return True when there is something to receive; False when there is not and waiting is not wanted."""
        while not stop.is_set():
            try:
                await self._check()
                self._was_woken = not self._goes_on
                if self._goes_on:
                    return True
                if self.pace.once:
                    return not await self._wake.is_none_left(self._next)
                await self._until_woken()
            except StreamRestored as error:
                await self._claim.confirm()
                logger.warning("%s; going on behind the lines that the files have", error)
                await self._claimed(None)
            except StreamMismatch as error:
                if self.pace.once:
                    raise
                self._checked = None
                await self._wait_blocked(Blocked(self._partition, Cause.STATE, str(error)), stop)
            else:
                return True
        return False

    async def _check(self) -> None:
        """Look now and then whether the stream still is the one that the offset belongs to."""
        now = asyncio.get_running_loop().time()
        if self._checked is None or now - self._checked >= _CHECK:
            await self._claim.check()
            self._checked = now

    async def _until_woken(self) -> None:
        """Return when there is something to receive, or files are to be closed.

        Raises `FencedError` as soon as a look shows that somebody else owns the partition, `StreamMismatch` as soon as
        one shows that the broker was set back: what is waited for may be there already.
        """
        asked = self._timer.asked
        waiting = asyncio.ensure_future(unless(asked, self._wake.wait(self._next)))
        try:
            while not waiting.done():
                seconds = min(self._timer.left(), _LOOK_AROUND)
                self._is_silent = not (await asyncio.wait({waiting}, timeout=seconds))[0]
                if self._is_silent:
                    await self._check()
                    await self._claim.look_around()
                    if self._timer.is_due:
                        return
            await waiting
        finally:
            waiting.cancel()

    async def _patiently(self, ask: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> bool:
        """Ask the broker until it answers; False when told to stop meanwhile."""
        refusals = 0
        while not stop.is_set():
            try:
                return bool(await unless(stop, ask()))
            except ConnectionLost:
                await unless(stop, asyncio.sleep(_FIRST_PAUSE))
            except Rejected as error:
                refusals += 1
                words = f"partition {self._partition}: the broker refuses: {error}; run `logbroker apply`"
                if self.pace.once and refusals >= _REFUSALS:
                    raise OperatorError(words) from None
                if refusals == 1:
                    logger.warning("%s; waiting", words)
                await unless(stop, asyncio.sleep(_FIRST_PAUSE))
        return False

    async def _run_task(self, stop: asyncio.Event) -> bool:
        """Run a task at the partition; True when there may be more for the next one."""
        rotation = self._timer.take(is_silent=self._is_silent)
        report = await self._report(rotation, stop)
        fault("heard")
        self._claim.follow(report.done)
        is_stuck = isinstance(report.ended, Blocked | Superseded)
        if report.batches or report.done.notices or not is_stuck:
            self._attempts = 0
            self._meter.done(report.done, report.batches, report.seconds)
            if report.done.closed:
                self._retention.set()
        match report.ended:
            case Ending.SILENCE:
                self._fell_silent = asyncio.get_running_loop().time()
                is_vain = self._was_woken and rotation is ForcedRotation.NONE
                await self._counted_vain(is_vain and not report.batches, stop)
                return False
            case Ending.TIME | Ending.ASKED:
                return True
            case Blocked() as blocked:
                self._timer.again(rotation)
                await self._wait_blocked(blocked, stop)
                return False
            case Superseded(_, detail, ""):
                raise FencedError(f"partition {self._partition}: {detail}")
            case Superseded(_, _, successor):
                raise TakenOver(self._partition, successor)

    async def _counted_vain(self, is_vain: bool, stop: asyncio.Event) -> None:
        """Pause where the wake-up consumer has messages and tasks find none: never a tight loop of jobs."""
        self._vain = self._vain + 1 if is_vain else 0
        if self._vain < _VAIN:
            return
        if self._vain == _VAIN:
            logger.error(
                "partition %d: there are lines from sequence %d on, but consumer %s delivers none; delete it, it is made again",
                *(self._partition, self._next, consumer_name(self._partition)),
            )
        await unless(stop, asyncio.sleep(_BRISK_PAUSE))

    async def _report(self, rotation: ForcedRotation, stop: asyncio.Event) -> Report:
        leave, subject = asyncio.Event(), f"{_LEAVE}.{self._connection.private()}"
        task = asyncio.ensure_future(self._jobs.submit(self._assignment(rotation, subject), leave))
        asking = asyncio.ensure_future(self._ask_to_leave(subject, stop, leave))
        try:
            overdue = self.pace.session.longest + self.pace.patience
            while not (await asyncio.wait({task}, timeout=overdue))[0]:
                words = f"no report of its task for {overdue:.0f} s: Spark has no executor for it, or a disk hangs"
                self._meter.blocked(Blocked(self._partition, Cause.SPARK, words))
            return await task
        finally:
            asking.cancel()
            task.cancel()

    async def _ask_to_leave(self, subject: str, stop: asyncio.Event, leave: asyncio.Event) -> None:
        """Ask a task to leave when we are to stop, files to be turned or others to have its slot, until it is gone."""
        await unless(stop, unless(self._timer.asked, leave.wait()))
        while True:
            with suppress(ConnectionLost):
                await self._connection.publish(subject)
            await asyncio.sleep(_INSIST)

    @property
    def _next(self) -> int:
        offset = self._claim.offset
        assert offset is not None, "claimed before anything is assigned"
        return offset.next

    def _assignment(self, rotation: ForcedRotation, leave: str) -> Assignment:
        offset, pace = self._claim.offset, self.pace
        assert offset is not None, "claimed before anything is assigned"
        return Assignment(
            self._partition,
            offset.next,
            offset.epoch,
            pace.limit,
            rotation,
            pace.pull,
            self._how_long(),
            leave,
        )

    def _how_long(self) -> SessionLimits:
        session = self.pace.session
        if self._attempts:
            return session.short()
        now = asyncio.get_running_loop().time()
        is_trickle = now - self._fell_silent < session.longest and not self.pace.once
        return session.patient() if is_trickle else session

    async def _wait_blocked(self, blocked: Blocked, stop: asyncio.Event) -> None:
        self._attempts += 1
        if self.pace.once and self._attempts >= _ATTEMPTS.get(blocked.cause, 3):
            detail = f"{blocked.cause.value}: {blocked.detail}"
            raise OperatorError(f"partition {self._partition} is blocked, {detail}")
        if blocked.cause is not Cause.BROKER:
            # whoever has taken it over may hold its lock nearly all the time, or have mended by hand what blocks us
            with suppress(ConnectionLost, Rejected):  # asked again before the next attempt
                await unless(stop, self._claim.confirm())
            await unless(stop, self._count())
        self._meter.blocked(blocked)
        is_brisk = blocked.cause in {Cause.BROKER, Cause.MOVED}
        seconds = _FIRST_PAUSE * 2 ** min(self._attempts - 1, 10)
        await unless(
            stop, asyncio.sleep(min(seconds, _BRISK_PAUSE if is_brisk else _LONGEST_PAUSE))
        )
