"""One partition's loop: wait for something, have it written by a task, commit it, acknowledge it, and again."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from broker.connection import Connection, ConnectionLost, Rejected
from broker.exits import FencedError, OperatorError
from receiver.assignment import Assignment
from receiver.faults import fault
from receiver.following.jobs import Jobs
from receiver.following.ledger import Ledger
from receiver.following.offsets import StreamMismatch
from receiver.following.patience import pause, unless
from receiver.following.turns import Turns
from receiver.following.wake import Wake
from receiver.outcome import Blocked, Cause, Done, Superseded
from receiver.writing.calendar import Calendar
from receiver.writing.spans import Finding, Kind

__all__ = ["Follower", "Pace"]

_SMALL = 1024 * 1024  # bytes of lines; while batches are larger, rate matters more than latency
_LONG = 2.5  # how much longer the pause is then
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0  # seconds between attempts of a blocked partition
_MOST_TOLD = 20  # findings of a batch in the log
_CHECK = 5.0  # seconds between looks at the stream while lines come
_ONCE_ATTEMPTS = 3  # blocked attempts after which --once gives up

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How large batches are and how often they begin.

    `limit` is in bytes of messages; `linger` in seconds, between batches that empty the stream; with `once` a follower
    ends when nothing is left.
    """

    limit: int
    linger: float
    once: bool

    def rest(self, done: Done) -> float:
        """Return how many seconds after a batch that emptied the stream began the next one may begin.

        A job costs the same for a line as for megabytes; what arrives meanwhile makes the next batch worth it.
        """
        if self.once:
            return 0
        return self.linger if done.size < _SMALL else self.linger * _LONG


class Follower:
    """Follows one partition until it is told to stop, or, with `once`, until nothing is left."""

    def __init__(
        self,
        partition: int,
        connection: Connection,
        jobs: Jobs,
        ledger: Ledger,
        wake: Wake,
        pace: Pace,
        clock: Callable[[], datetime],
        closed: Callable[[tuple[str, ...]], None],
        turns: Turns | None = None,
    ) -> None:
        """Take the parts; `closed` is told which segments a committed batch has closed."""
        self._partition = partition
        self._connection = connection
        self._jobs = jobs
        self._ledger = ledger
        self._wake = wake
        self._pace = pace
        self._clock = clock
        self._closed = closed
        self._turns = turns or Turns(Calendar(timedelta()), lambda: 0)
        self._is_silent = False
        self._checked: float | None = None
        self._blocked: str | None = None
        self._attempts = 0

    async def run(self, stop: asyncio.Event, revision: int | None = None) -> None:
        """Claim the partition and follow it; raises `FencedError`, and OperatorError for what only a person can mend.

        With a `revision` return at once if the offset is no longer at that: somebody else has claimed it.
        """
        loop = asyncio.get_running_loop()
        if not await self._patiently(partial(self._claim, revision), stop):
            return
        pending = 0
        while not stop.is_set():
            if not pending and not await self._patiently(partial(self._something, stop), stop):
                return
            if stop.is_set():
                return
            began = loop.time()
            done = await self._batch(stop)
            pending = _left(done) if done else 0
            if done and not pending:
                await pause(stop, began + self._pace.rest(done) - loop.time())

    async def _claim(self, revision: int | None) -> bool:
        offset = await self._ledger.claim(self._clock(), revision)
        if offset is None:
            return False
        logger.info(
            "partition %d: from sequence %d, epoch %d", self._partition, offset.next, offset.epoch
        )
        return True

    async def _something(self, stop: asyncio.Event) -> bool:
        """Return True when there is something to receive; False when there is not and waiting is not wanted."""
        while not stop.is_set():
            try:
                await self._check()
                if self._pace.once:
                    return await self._wake.pending(self._assignment().first) > 0
                await self._until_it_rings(self._assignment().first)
            except StreamMismatch as error:
                if self._pace.once:
                    raise
                self._checked = None
                await self._wait_blocked(Blocked(self._partition, Cause.STATE, str(error)), stop)
            else:
                return True
        return False

    async def _check(self, *, is_silent: bool = False) -> None:
        """Look now and then whether the stream still is the one that the offset belongs to."""
        now = asyncio.get_running_loop().time()
        if self._checked is None or now - self._checked >= _CHECK:
            await self._ledger.check(is_silent=is_silent)
            self._checked = now

    async def _until_it_rings(self, sequence: int) -> None:
        """Return when there is something to receive, or files are to be turned meanwhile."""
        while True:
            try:
                async with asyncio.timeout(self._turns.left()):
                    await unless(self._turns.asked, self._wake.wait(sequence))
            except TimeoutError:
                self._is_silent = True
                await self._check(is_silent=True)
                if self._turns.is_due:
                    return
            else:
                self._is_silent = False
                return

    async def _patiently(self, ask: Callable[[], Awaitable[bool]], stop: asyncio.Event) -> bool:
        """Ask the broker until it answers; False when told to stop meanwhile."""
        refusals = 0
        while not stop.is_set():
            try:
                return bool(await unless(stop, ask()))
            except ConnectionLost:
                await pause(stop, _FIRST_PAUSE)
            except Rejected as error:
                refusals += 1
                words = f"partition {self._partition}: the broker refuses: {error}; run `logbroker apply`"
                if self._pace.once and refusals >= _ONCE_ATTEMPTS:
                    raise OperatorError(words) from None
                if refusals == 1:
                    logger.warning("%s; waiting", words)
                await pause(stop, _FIRST_PAUSE)
        return False

    async def _batch(self, stop: asyncio.Event) -> Done | None:
        turn = self._turns.take(is_silent=self._is_silent)
        match await self._jobs.submit(replace(self._assignment(), turn=turn)):
            case Done() as done:
                await self._commit(done)
                return done
            case Blocked() as blocked:
                self._turns.again(turn)
                await self._wait_blocked(blocked, stop)
                return None
            case Superseded(_, detail):
                raise FencedError(f"partition {self._partition}: {detail}; this receiver stops")

    def _assignment(self) -> Assignment:
        offset = self._ledger.offset
        assert offset is not None, "claimed before anything is assigned"
        return Assignment(self._partition, offset.next, offset.epoch, self._pace.limit)

    async def _commit(self, done: Done) -> None:
        if done.until == done.first:
            self._tell(done)
            self._closed(done.closed)
            return
        await self._ledger.commit(done, self._clock())
        fault("committed")
        self._tell(done)
        self._closed(done.closed)
        try:
            await self._connection.publish(done.ack, b"+ACK")
        except ConnectionLost:
            return  # that's fine: the next batch's acknowledgement covers this one's

    def _tell(self, done: Done) -> None:
        if self._blocked is not None:
            logger.info("partition %d goes on", self._partition)
        self._blocked, self._attempts = None, 0
        for finding in done.findings[:_MOST_TOLD]:
            logger.warning("partition %d: %s", self._partition, _describe(finding))
        if len(done.findings) > _MOST_TOLD:
            logger.warning(
                "partition %d: %d more of these; every gap stands in .gaps.jsonl",
                self._partition,
                len(done.findings) - _MOST_TOLD,
            )
        for notice in done.notices:
            logger.warning("partition %d: %s", self._partition, notice)
        if done.quarantined:
            logger.warning(
                "partition %d: %d messages that are no lines were set aside in .quarantine",
                self._partition,
                done.quarantined,
            )
        logger.debug(
            "partition %d: committed up to %d, %d lines", self._partition, done.until, done.lines
        )

    async def _wait_blocked(self, blocked: Blocked, stop: asyncio.Event) -> None:
        self._attempts += 1
        detail = f"{blocked.cause.value}: {blocked.detail}"
        if self._pace.once and (blocked.cause is Cause.STATE or self._attempts >= _ONCE_ATTEMPTS):
            raise OperatorError(f"partition {self._partition} is blocked, {detail}")
        if detail != self._blocked:
            logger.error(
                "partition %d is blocked, its lines wait in the stream: %s", self._partition, detail
            )
        self._blocked = detail
        await pause(stop, _blocked_pause(self._attempts))


def _left(done: Done) -> int:
    """Return how much there is to do at once; a task tells of gaps in the output folder when they are committed."""
    return done.pending + sum(finding.kind is Kind.GAP for finding in done.findings)


def _blocked_pause(attempts: int) -> float:
    """Return the seconds to wait after so many blocked attempts; it may be days of them."""
    return float(min(_FIRST_PAUSE * 2 ** min(attempts - 1, 10), _LONGEST_PAUSE))


def _describe(finding: Finding) -> str:
    return (
        f"{finding.kind.value} of {finding.end - finding.start} bytes: host {finding.host}, file {finding.file!r}, "
        f"bytes {finding.start} to {finding.end}, seen at sequence {finding.sequence}"
    )
