"""One partition's loop: claim it, wait until there is something, run a task there until nothing comes any more; again.

A standby claims only what nobody has, and stands by again where it has lost the partition.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

from nats_logship.app.exits import ConfigurationError, FencedError, OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.timestamps import to_datetime
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import (
    LARGEST_PULL,
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
from receiver.consume.stream_check import StreamMismatch, StreamRestored
from receiver.consume.wake import Wake
from receiver.driver.presence import (
    describe_owners,
    find_live_owner,
    run_unless_stopped,
    wait_until_free,
)
from receiver.meter import PartitionMeter
from receiver.storage.damage import Damaged, Misplaced
from receiver.storage.rotation import Calendar

_BRISK_PAUSE, _LONGEST_PAUSE = 2.0, 15.0  # seconds between attempts
_PASSING = {Cause.BROKER: 12, Cause.MOVED: 60}
"""What passes by itself: it is tried again at the brisk pause, with --once so often; anything else three times."""
_REFUSALS = 3  # after which --once gives up
_OF_A_RESTART = 60  # refusals of a broker that starts, with half a minute of pauses between them
_RELEASE_PATIENCE = 1.0  # seconds
_VAIN_PAUSE = 0.5  # seconds after a task that found no line although there was one: never a tight loop of jobs
_INSIST = 0.5  # seconds between requests to a task to leave: it may not hear the first

_GRACE = 2_000_000_000  # nanoseconds that a period's last lines may be late, and clocks differ
_AGAIN = 60_000_000_000  # nanoseconds
_SILENCE = 2.0  # seconds

_LEAVE = "logship.leave"  # the subjects on which tasks are asked to leave

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How large batches are, `limit` and `pull` in bytes, and how long tasks run.

    With `once` a follower ends when nothing is left, and unless it may `take_over` leaves a
    receiver that runs its partition. Seconds: of silence after which a `standby` takes over,
    `patience` with a task that has not reported, `pause` between the first attempts at what goes
    wrong, and between looks at the stream, for a successor and at the clock, which may be set
    (`check_every`).
    """

    limit: int
    pull: int = LARGEST_PULL
    session: SessionLimits = field(default_factory=SessionLimits)
    once: bool = False
    take_over: bool = True
    standby: float | None = None
    patience: float = 60.0
    pause: float = 0.5
    check_every: float = 10.0


@dataclass(slots=True)
class Shared:
    """What all partitions of a receiver share; their next tasks go by its `limits`.

    `run_task` is called in one of the `threads`, of which there are as many as tasks that may run at once. `clock` is
    nanoseconds since the epoch; `closed` is set when a committed batch has closed segments.
    """

    connection: Connection
    run_task: Callable[[Assignment], Report]
    threads: ThreadPoolExecutor
    clock: Callable[[], int]
    calendar: Calendar
    limits: TaskLimits
    closed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class RotationTimer:
    """When the live files of one partition that gets no lines are closed: once after every period, and whenever somebody asks.

    The clock closes files only where nothing comes. While lines come, the first one of a new period
    has all files closed whose last line is of an earlier one: by the clock of the broker, since
    lines of yesterday may still be on their way. `clock` gives nanoseconds since the epoch; `asked`
    is set as long as somebody waits for every file to be closed, at the next batch boundary.
    """

    calendar: Calendar
    clock: Callable[[], int]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    _until: int = 0
    _next: ForcedRotation = ForcedRotation.DUE

    @property
    def is_due(self) -> bool:
        """Say whether the period is over in which files were closed last."""
        return self.clock() >= self._until

    def left(self) -> float:
        """Return after how many seconds of silence files are to be closed; the clock is to be looked at again then."""
        return max((self._until - self.clock()) / 1e9, _SILENCE)

    def take(self, *, is_silent: bool) -> ForcedRotation:
        """Return what is to be done now, once; by the clock only when the partition is silent."""
        if self.asked.is_set():
            self.asked.clear()
            return ForcedRotation.ALL
        if not self.is_due or not (is_silent or self._next is ForcedRotation.ALL):
            return ForcedRotation.NONE
        rotation, self._next = self._next, ForcedRotation.DUE
        self._until = self.calendar.period(self.clock() - _GRACE).end + _GRACE
        return rotation

    def again(self, rotation: ForcedRotation) -> None:
        """Have what could not be done tried again in a minute; receiving goes on meanwhile."""
        if rotation is not ForcedRotation.NONE:
            self._next, self._until = rotation, self.clock() + _AGAIN


class PartitionSupervisor:
    """Follows one partition until `stop` is set, or, with `once`, until nothing is left."""

    def __init__(self, shared: Shared, claim: Claim, meter: PartitionMeter) -> None:
        """Claim nothing yet; `claim` and `meter` are of one partition."""
        self.stop = asyncio.Event()
        self._shared = shared
        self.claim = claim
        self.wake = Wake(claim.connection, claim.partition, claim.stream)
        self._meter = meter
        self._partition = meter.partition
        self.timer = RotationTimer(shared.calendar, shared.clock)
        self._is_silent = self._goes_on = self._has_heard = False
        self._was_damaged = False  # and not claimed again since
        self._checked = self._disturbed_at = -inf
        self._attempts = 0

    async def run(self) -> None:
        """Claim the partition and follow it; raises OperatorError for what may concern all.

        What only a person can mend of this partition alone blocks it, unless `once`. Unless it
        stands by: raises `TakenOver` by another receiver, `FencedError` when a person has moved its
        offset.
        """
        refusals = 0
        while not self.stop.is_set():
            try:
                if not await run_unless_stopped(self.stop, self._has_work()):
                    break
                refusals = 0
                self._goes_on = await self._run_task()
                continue
            except ConnectionLost:
                pass  # that's fine: the connection says that the broker is away
            except Rejected as error:
                refusals += 1
                self._refused(error, refusals)
            except Damaged as error:
                await self._wait_for_mending(error)
            except FencedError as error:
                self._stand_by_again(error)
            await run_unless_stopped(self.stop, asyncio.sleep(self._shared.limits.pause))
        # so that a standby need not wait for our silence; a broker that is away is no error
        with suppress(ConnectionLost, Rejected, ConfigurationError, TimeoutError):
            async with asyncio.timeout(_RELEASE_PATIENCE):
                await self.claim.release()

    async def _wait_for_mending(self, error: Damaged) -> None:
        """Wait before the partition is claimed again, until a person has mended it.

        Raises the error with `once`, and where store or files were found misplaced at the start:
        others would be written there.
        """
        is_misplaced = isinstance(error, Misplaced) and not self._was_damaged
        if self._shared.limits.once or is_misplaced:
            raise error
        self.claim.offset, self._was_damaged = None, True
        await self._blocked(Cause.STATE, str(error))

    def _stand_by_again(self, error: FencedError) -> None:
        if self._shared.limits.standby is None:
            raise error
        logger.warning("%s; it stands by again", error)
        self.claim.offset = None

    def _refused(self, error: Rejected, count: int) -> None:
        words = f"partition {self._partition}: the broker refuses: {error}; {error.remedy}"
        if self._shared.limits.once and count >= _REFUSALS:
            raise OperatorError(words) from None
        if count == (_OF_A_RESTART if error.is_leaderless else 1):
            logger.warning("%s; waiting", words)

    async def _claim(self) -> None:
        """Claim the partition, as a standby once it is free.

        Raises `TakenOver` if another receiver was quicker to claim it once its offset was mended,
        and OperatorError for an owner that runs where it is not to be taken over.
        """
        silence, revision, offset = self._shared.limits.standby, None, None
        while offset is None:
            if silence is not None:
                revision = await wait_until_free(self.claim, self._meter, silence)
            elif self._was_damaged or not self._shared.limits.take_over:
                owner, revision = await find_live_owner(self.claim)
                if owner and not self._shared.limits.take_over:
                    raise OperatorError(describe_owners({self._partition: owner}))
                if owner:
                    raise TakenOver(self._partition, owner)
            now = to_datetime(self._shared.clock())
            offset = await self.claim.claim(now, revision)
        self._was_damaged = False
        self._disturbed_at = asyncio.get_running_loop().time()
        self.wake.epoch = offset.epoch
        self._meter.note_claim(offset)
        words = "partition %d: from sequence %d, epoch %d"
        logger.info(words, self._partition, offset.next, offset.epoch)
        await self._count()

    async def _count(self) -> None:
        with suppress(ConnectionLost, Rejected):  # that's fine: it is only shown
            self._meter.pending = await self.wake.count(self._offset.next)

    async def _has_work(self) -> bool:
        """Return True when there is something to receive; False when there is not and waiting is not wanted."""
        while True:
            if self.claim.offset is None:
                await self._claim()
            try:
                return await self._look()
            except StreamRestored as error:
                await self.claim.confirm()
                logger.warning("%s; going on behind the lines that the files have", error)
                self.claim.offset = None
            except StreamMismatch as error:
                if self._shared.limits.once:
                    raise
                self._checked = -inf
                await self._blocked(Cause.STATE, str(error))

    async def _look(self) -> bool:
        await self._check()
        if not self._goes_on:
            if self._shared.limits.once:
                return not await self.wake.is_drained(self._offset.next)
            await self._until_woken()
        return True

    async def _check(self) -> None:
        """Look now and then whether the stream still is the one that the offset belongs to."""
        now = asyncio.get_running_loop().time()
        if now - self._checked >= self._shared.limits.check_every:
            await self.claim.check()
            self._checked = now

    async def _until_woken(self) -> None:
        """Return when there is something to receive, or files are to be closed.

        Raises `FencedError` as soon as a look shows that somebody else owns the partition, `StreamMismatch` as soon as
        one shows that the broker was set back: what is waited for may be there already.
        """
        timer = self.timer
        waiting = asyncio.ensure_future(
            run_unless_stopped(timer.asked, self.wake.wait(self._offset.next))
        )
        try:
            while not waiting.done():
                seconds = min(timer.left(), self._shared.limits.check_every)
                self._is_silent = not (await asyncio.wait({waiting}, timeout=seconds))[0]
                if self._is_silent:
                    await self._check()
                    await self.claim.check_ownership()
                    if timer.is_due:
                        return
            await waiting
        finally:
            waiting.cancel()

    async def _run_task(self) -> bool:
        """Run a task at the partition; True when there may be more for the next one."""
        rotation = self.timer.take(is_silent=self._is_silent)
        self._meter.is_starting = not self._has_heard
        self._meter.began_at = self._shared.clock()
        report = await self._report(rotation)
        self._has_heard, self._meter.is_starting = True, False
        fault("report_received")
        self.claim.follow(report.done)
        is_stuck = isinstance(report.outcome, Blocked | Superseded)
        if report.batches or report.done.notices or not is_stuck:
            self._attempts = 0
            self._meter.count(report)
            if report.done.closed:
                self._shared.closed.set()
        match report.outcome:
            case Ending.SILENCE:
                was_woken = not self._goes_on and rotation is ForcedRotation.NONE
                if was_woken and not report.batches:
                    await run_unless_stopped(self.stop, asyncio.sleep(_VAIN_PAUSE))
            case Ending.TIME | Ending.ASKED:
                return True
            case Blocked(cause, detail):
                self.timer.again(rotation)
                await self._blocked(cause, detail)
            case Superseded(detail, successor):
                moved = FencedError(f"partition {self._partition}: {detail}")
                raise TakenOver(self._partition, successor) if successor else moved
        return False

    async def _report(self, rotation: ForcedRotation) -> Report:
        """Run a task, in the next slot that is free, and return its report."""
        shared, limits = self._shared, self._shared.limits
        session, subject = limits.session, f"{_LEAVE}.{shared.connection.new_token()}"
        if self._attempts or not self._has_heard:
            # one batch: that the partition is received, or goes on, is told soon
            session = replace(session, longest=0.0)
        if not self._is_undisturbed(session.stalled_after):
            session = replace(session, stalled_after=inf)
        assignment = Assignment(
            *(self._partition, self._offset.next, self._offset.epoch, limits.limit, rotation),
            *(limits.pull, session, subject),
        )
        running = asyncio.get_running_loop().run_in_executor
        task = running(shared.threads, shared.run_task, assignment)
        asking = asyncio.ensure_future(self._ask_to_leave(subject))
        try:
            overdue = limits.session.longest + limits.patience
            while not (await asyncio.wait({task}, timeout=overdue))[0]:
                await self._look_at_progress(overdue)
            return await task
        finally:
            asking.cancel()
            task.cancel()

    async def _look_at_progress(self, overdue: float) -> None:
        """Take note whether a task that has not reported for so many seconds commits batches."""
        with suppress(ConnectionLost, Rejected, OperatorError):  # that's fine: its report says so
            committed = (await self.claim.confirm()).next
            if committed > self._meter.next:
                self._meter.note_progress(committed)
                return
        words = (
            f"no report of its task and nothing committed for {overdue:.0f} s: Spark has no "
            "executor for it, a disk hangs, or one batch takes that long"
        )
        self._meter.note_blocked(Blocked(Cause.SPARK, words))

    def _is_undisturbed(self, seconds: float) -> bool:
        """Whether nothing kept us from receiving for so long: it may keep others, too."""
        since = max(self._disturbed_at, self._shared.connection.connected_at)
        return asyncio.get_running_loop().time() - since >= seconds

    async def _ask_to_leave(self, subject: str) -> None:
        """Ask a task to leave when we are to stop, or files to be closed, until it is gone."""
        await run_unless_stopped(self.stop, self.timer.asked.wait())
        while True:
            with suppress(ConnectionLost):
                await self._shared.connection.publish(subject)
            await asyncio.sleep(_INSIST)

    @property
    def _offset(self) -> Offset:
        assert self.claim.offset is not None, "claimed before anything is assigned"
        return self.claim.offset

    async def _blocked(self, cause: Cause, detail: str) -> None:
        """Wait before what is blocked is tried again; raises `OperatorError` where that is not wanted."""
        self._attempts += 1
        if cause is not Cause.MOVED:
            self._disturbed_at = asyncio.get_running_loop().time()
        most = 1 if cause is Cause.STATE else _PASSING.get(cause, 3)
        if self._shared.limits.once and self._attempts >= most:
            raise OperatorError(f"partition {self._partition} is blocked, {cause.value}: {detail}")
        if cause is not Cause.BROKER and self.claim.offset is not None:
            # whoever has taken it over may hold its lock nearly all the time, or have mended by hand what blocks us
            with suppress(ConnectionLost, Rejected):  # asked again before the next attempt
                await run_unless_stopped(self.stop, self.claim.confirm())
            await run_unless_stopped(self.stop, self._count())
        self._meter.note_blocked(Blocked(cause, detail))
        longest = _BRISK_PAUSE if cause in _PASSING else _LONGEST_PAUSE
        seconds = min(self._shared.limits.pause * 2 ** min(self._attempts - 1, 10), longest)
        await run_unless_stopped(self.stop, asyncio.sleep(seconds))
