"""Keep one partition received: claim it, wait for messages, run a session in a slot; repeat.

A standby claims a partition once nobody owns it, and waits again if it loses the partition.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from math import inf

from nats_logship.app.exits import ConfigurationError, FencedError, OperatorError
from nats_logship.app.faults import fault
from nats_logship.app.timestamps import to_datetime
from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.wire.offset import Offset
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
from receiver.consume.claim import Claim, StreamMismatch, StreamRestored, TakenOver
from receiver.consume.wake import Wake
from receiver.driver.rotation_timer import RotationTimer
from receiver.driver.slot import Shared
from receiver.driver.standby import describe_owners, find_live_owner, wait_until_free
from receiver.driver.stopping import run_unless_stopped
from receiver.meter import PartitionMeter
from receiver.storage.damage import Damaged, Misplaced

_SHORT_PAUSE, _LONG_PAUSE = 2.0, 15.0  # seconds between attempts, at most
_PASSING = {Cause.BROKER: 12, Cause.MOVED: 60}
"""Causes that end by themselves, and after how many attempts --once gives up."""
_MOST_ATTEMPTS = 3  # of --once at other causes
_REFUSALS = 3  # after which --once gives up
_LASTING_REFUSALS = 60  # without a leader: a broker that restarts has one after half a minute
_RELEASE_PATIENCE = 1.0  # seconds
_RENEWED_AFTER = 3  # sessions that got nothing; the third one makes the consumer again
_EMPTY_PAUSE = 0.5  # seconds after a task that found nothing: never a tight loop of jobs

logger = logging.getLogger(__name__)


class PartitionSupervisor:
    """Keeps one partition received until `stop` is set, or with `once` until nothing is left."""

    def __init__(self, shared: Shared, claim: Claim, meter: PartitionMeter, index: int = 0) -> None:
        """Claim nothing yet; `claim` and `meter` are of one partition, the `index`-th."""
        self.stop = asyncio.Event()
        self.claim = claim
        self.wake = Wake(claim.connection, claim.partition, claim.stream)
        self.timer = RotationTimer(shared.calendar, shared.clock)
        self.left: int | None = None
        """Messages that wait in the stream after `run`; None if that is unknown."""
        self._shared = shared
        self._meter = meter
        self._partition, self._index = meter.partition, index
        self._slot = shared.slot_of(index)
        self._is_silent = False  # nothing has come since the last task
        self._has_more = False  # the last task left messages behind
        self._was_damaged = False  # and has not been claimed again since
        self._checked_at = self._disturbed_at = -inf
        self._attempts = 0  # that failed, in a row
        self._is_awaited = False  # a message waits, says the broker
        self._in_vain = 0  # sessions since the last batch that got no message although one waited

    async def run(self) -> None:
        """Keep the partition received.

        A reason that only a person can remove blocks this partition, unless `once`. Raises
        OperatorError for a reason that may concern all partitions. A supervisor that is no standby
        raises `TakenOver` by another receiver, and `FencedError` if a person has moved the offset.
        """
        refusals = 0
        while not self.stop.is_set():
            try:
                if not await run_unless_stopped(self.stop, self._wait_for_work()):
                    break
                refusals = 0
                self._has_more = await self._run_task()
                continue
            except ConnectionLost:
                pass  # that's fine: the connection logs that the broker is away
            except Rejected as error:
                refusals += 1
                self._log_refusal(error, refusals)
            except Damaged as error:
                await self._wait_for_repair(error)
            except FencedError as error:
                self._stand_by_again(error)
            await run_unless_stopped(self.stop, asyncio.sleep(self._shared.limits.pause))
        await self._release()

    async def _release(self) -> None:
        """Free the partition, so that a standby claims it at once, and count what waits there."""
        if self.claim.offset is None:
            return
        # that's fine: if the broker is away, `left` stays unknown
        with suppress(ConnectionLost, Rejected, ConfigurationError, TimeoutError):
            async with asyncio.timeout(_RELEASE_PATIENCE):
                await self.claim.release()
                self.left = self._meter.pending = await self.wake.count(self._offset.next)

    async def _wait_for_repair(self, error: Damaged) -> None:
        """Block the partition until a person has repaired it; then it is claimed again.

        Raises the error with `once`, and if store or files are misplaced at the start: other
        partitions would be written to the wrong folder as well.
        """
        is_misplaced = isinstance(error, Misplaced) and not self._was_damaged
        if self._shared.limits.once or is_misplaced:
            raise error
        self.claim.offset, self._was_damaged = None, True
        await self._wait_blocked(Cause.STATE, str(error))

    def _stand_by_again(self, error: FencedError) -> None:
        if self._shared.limits.standby is None:
            raise error
        logger.warning("%s; standing by again", error)
        self.claim.offset = None

    def _log_refusal(self, error: Rejected, count: int) -> None:
        reason = f"partition {self._partition}: the broker refuses: {error}; {error.remedy}"
        if isinstance(error, Denied) and self.claim.offset is None:
            reason = (
                f"partition {self._partition} is not in this receiver's credential: give "
                f"--partition those that `logbroker credentials list` shows for it ({error})"
            )
        if self._shared.limits.once and count >= _REFUSALS:
            raise OperatorError(reason) from None
        if count == (_LASTING_REFUSALS if error.is_leaderless else 1):
            logger.warning("%s; waiting", reason)

    async def _claim(self) -> None:
        """Claim the partition, as a standby once it is free.

        Raises `TakenOver` if another receiver has claimed it while it was repaired, and
        OperatorError for a running owner from which it may not be taken.
        """
        offset, is_start = None, self._shared.limits.standby is None and not self._meter.epoch
        while offset is None:
            revision = await self._find_free_revision()
            offset = await self.claim.claim(to_datetime(self._shared.clock()), revision)
        self._was_damaged = False
        self._disturbed_at = asyncio.get_running_loop().time()
        self.wake.epoch = offset.epoch
        self._meter.note_claim(offset)
        logger.log(
            logging.DEBUG if is_start else logging.INFO,
            "partition %d: from sequence %d, epoch %d",
            self._partition,
            offset.next,
            offset.epoch,
        )
        await self._count_pending(self._offset.next)

    async def _find_free_revision(self) -> int | None:
        """Return the revision at which the partition may be claimed, None for any."""
        limits = self._shared.limits
        if limits.standby is not None:
            return await wait_until_free(self.claim, self._meter, limits.standby)
        if limits.take_over and not self._was_damaged:
            return None
        owner, revision = await find_live_owner(self.claim)
        if owner and not limits.take_over:
            raise OperatorError(describe_owners({self._partition: owner}))
        if owner:
            raise TakenOver(self._partition, owner)
        return revision

    async def _count_pending(self, sequence: int) -> None:
        with suppress(ConnectionLost, Rejected):  # that's fine: the number is only shown
            self._meter.pending = await self.wake.count(sequence)

    async def _wait_for_work(self) -> bool:
        """Return True once there is something to receive; False with `once` if nothing is left."""
        while True:
            if self.claim.offset is None:
                await self._claim()
            try:
                return await self._is_left()
            except StreamRestored as error:
                await self.claim.confirm()
                logger.warning("%s; going on behind the lines that the files have", error)
                self.claim.offset = None
            except StreamMismatch as error:
                if self._shared.limits.once:
                    raise
                self._checked_at = -inf
                await self._wait_blocked(Cause.STATE, str(error))

    async def _is_left(self) -> bool:
        """Whether something is left to receive; waits for it unless `once`."""
        await self._check_stream()
        if not self._has_more:
            if self._shared.limits.once:
                self._is_awaited = not await self.wake.is_drained(self._offset.next)
                return self._is_awaited
            await self._wait_until_woken()
        return True

    async def _check_stream(self) -> None:
        """Check now and then that the offset still belongs to the stream."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at >= self._shared.limits.check_every:
            await self.claim.check_stream()
            self._checked_at = now

    async def _wait_until_woken(self) -> None:
        """Return once there is something to receive, or files are to be closed.

        Raises `FencedError` if somebody else owns the partition, `StreamMismatch` if the broker has
        gone back to an earlier state: the message that it waits for may be there already.
        """
        timer, self._slot = self.timer, self._shared.slot_of(self._index)
        self._is_awaited = False
        woken = run_unless_stopped(self._slot.joining, self.wake.wait(self._offset.next))
        waiting = asyncio.ensure_future(run_unless_stopped(timer.asked, woken))
        try:
            while not waiting.done():
                seconds = min(timer.seconds_left(), self._shared.limits.check_every)
                self._is_silent = not (await asyncio.wait({waiting}, timeout=seconds))[0]
                if self._is_silent:
                    self.claim.note_silence()
                    await self._check_stream()
                    await self.claim.check_ownership()
                    if timer.is_due:
                        return
            self._is_awaited = bool(await waiting)
        finally:
            waiting.cancel()

    async def _run_task(self) -> bool:
        """Run a session at the partition; return whether there may be more for the next one."""
        self._slot = self._shared.slot_of(self._index)
        rotation, was_due = self.timer.take(is_silent=self._is_silent), self.timer.is_due
        self._meter.is_starting = not self._slot.has_reported
        self._meter.began_at = self._shared.clock()
        report = await self._wait_for_report(rotation)
        self._meter.is_starting = False
        fault("report_received")
        self._note_removed(report)
        self.claim.advance(report.done)
        self._is_silent = not report.batches
        if report.batches:
            self._in_vain = 0
        if was_due and report.batches:
            self.timer.note_lines()
        self._count(report)
        match report.outcome:
            case Ending.SILENCE:
                was_woken = not self._has_more and rotation is ForcedRotation.NONE
                if was_woken and not report.batches:
                    self._in_vain += self._is_awaited
                    await run_unless_stopped(self.stop, asyncio.sleep(_EMPTY_PAUSE))
            case Ending.TIME | Ending.ASKED:
                return True
            case Blocked(cause, detail):
                self.timer.retry(rotation)
                self._in_vain += cause is Cause.BROKER
                await self._wait_blocked(cause, detail)
                return True  # only a session finds out whether it is mended
            case Superseded(detail, successor):
                moved = FencedError(f"partition {self._partition}: {detail}")
                raise TakenOver(self._partition, successor) if successor else moved
        return False

    def _note_removed(self, report: Report) -> None:
        """Report what was removed before a session that has asked for all that is left."""
        if report.batches or report.outcome in {Ending.SILENCE, Ending.TIME}:
            if report.batches and not report.done.pending:
                self.claim.note_silence()
            else:  # a session may get nothing although something is left
                self.claim.report_removed()

    def _count(self, report: Report) -> None:
        has_failed = isinstance(report.outcome, Blocked | Superseded)
        if report.batches or report.done.notices or not has_failed:
            self._attempts = 0
            self._meter.count(report)
            if report.done.closed:
                self._shared.closed.set()

    async def _wait_for_report(self, rotation: ForcedRotation) -> Report:
        """Run a session in the next task of the slot, and return its report."""
        limits = self._shared.limits
        assignment = Assignment(
            partition=self._partition,
            first=self._offset.next,
            epoch=self._offset.epoch,
            limit=limits.limit,
            rotation=rotation,
            pull=limits.pull,
            session=self._limit_session(limits.session),
            renew=self._in_vain % _RENEWED_AFTER == _RENEWED_AFTER - 1,
        )
        report = asyncio.ensure_future(self._slot.run(assignment))
        ending = asyncio.ensure_future(self._end_task_when_asked())
        try:
            await self._watch_session(report, limits.session.longest + limits.patience)
            return await report
        finally:
            ending.cancel()
            report.cancel()

    async def _watch_session(self, report: "asyncio.Future[Report]", overdue: float) -> None:
        """Return when a session has reported.

        Meanwhile its task is ended if the partition was lost, if the files are to be closed, or if
        the partition is dealt to another slot: a request made before a task has begun does not
        reach it. It is noted if there is no report for `overdue` seconds.
        """
        clock = asyncio.get_running_loop().time
        seen, check_every = clock(), min(self._shared.limits.check_every, overdue)
        while not (await asyncio.wait({report}, timeout=check_every))[0]:
            is_moved = self._slot is not self._shared.slot_of(self._index)
            if self.timer.is_due or self.timer.asked.is_set() or is_moved:
                self._slot.end_task()
            if await self._has_progressed():
                seen = clock()
            if clock() - seen >= overdue:
                reason = (
                    f"no report of its task and nothing committed for {overdue:.0f} s: Spark has "
                    "no executor for it, a disk hangs, or one batch takes that long"
                )
                self._meter.note_blocked(Blocked(Cause.SPARK, reason))

    async def _has_progressed(self) -> bool:
        """Whether the session has committed a batch; ends its task if the partition was lost."""
        try:
            committed = (await self.claim.confirm()).next
        except FencedError:
            self._slot.end_task()
        except (ConnectionLost, Rejected, OperatorError):
            pass  # that's fine: the report says so
        else:
            if committed > self._meter.next:
                self._meter.note_progress(committed)
                await self._count_pending(committed)
                return True
        return False

    def _limit_session(self, session: SessionLimits) -> SessionLimits:
        if self._attempts or not self._slot.has_reported:
            # one batch: its report soon shows that the partition is received, or is again
            session = replace(session, longest=0.0)
        if not self._is_undisturbed(session.stalled_after):
            session = replace(session, stalled_after=inf)
        return session

    def _is_undisturbed(self, seconds: float) -> bool:
        """Whether nothing has kept us from receiving for so long; others may be kept as well."""
        since = max(self._disturbed_at, self._shared.connection.connected_at)
        return asyncio.get_running_loop().time() - since >= seconds

    async def _end_task_when_asked(self) -> None:
        """End the task once we stop, or files are to be closed."""
        await run_unless_stopped(self.stop, self.timer.asked.wait())
        self._slot.end_task()

    @property
    def _offset(self) -> Offset:
        assert self.claim.offset is not None, "a partition is claimed before it is assigned"
        return self.claim.offset

    async def _wait_blocked(self, cause: Cause, detail: str) -> None:
        """Note that the partition is blocked, and wait before the next attempt.

        Raises OperatorError with `once` after the last attempt.
        """
        self._attempts += 1
        if cause is not Cause.MOVED:
            self._disturbed_at = asyncio.get_running_loop().time()
        most = 1 if cause is Cause.STATE else _PASSING.get(cause, _MOST_ATTEMPTS)
        if self._shared.limits.once and self._attempts >= most:
            raise OperatorError(f"partition {self._partition} is blocked, {cause.value}: {detail}")
        if cause is not Cause.BROKER and self.claim.offset is not None:
            # another receiver that owns it may hold its lock, or a person may have moved the offset
            with suppress(ConnectionLost, Rejected):  # that's fine: asked again by the next attempt
                await run_unless_stopped(self.stop, self.claim.confirm())
            await run_unless_stopped(self.stop, self._count_pending(self._offset.next))
        self._meter.note_blocked(Blocked(cause, detail))
        longest = _SHORT_PAUSE if cause in _PASSING else _LONG_PAUSE
        seconds = min(self._shared.limits.pause * 2 ** min(self._attempts - 1, 10), longest)
        await run_unless_stopped(self.stop, asyncio.sleep(seconds))
