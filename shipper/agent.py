"""The wiring of a shipper: what it starts, runs in sessions, and ends in which order.

Imports go one way: agent → loop → sender → publish → sources.

Stop order: 1. stop reading, 2. wait for the round in flight (bounded), 3. write the positions,
4. close the connection.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nats_logship.app.exits import Exit, FencedError, OperatorError, pick_error
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service
from nats_logship.app.timestamps import format_time
from nats_logship.wire.positions import Positions
from shipper.loop import Intervals, ShippingLoop
from shipper.once import require_files
from shipper.publish.publisher import Publisher, SessionLost, UnacknowledgedPublisher
from shipper.publish.waiting import connection_for
from shipper.settings import ShipperSettings, reload
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection
from shipper.sources.files.reader import most_open_files
from shipper.status.live import require_alone, status_socket
from shipper.status.report import AgentMeter, HostReport, list_files, seconds_since

if TYPE_CHECKING:
    from shipper.sources.stdin import Spool

_LANDING = 6.0  # seconds for a round in flight when the agent must end; all ends within 10
_READING = 1.0  # seconds for a read, if no round is in flight or the broker is away
_CLOSING = 2.0
_SNAPSHOT_EVERY = 60.0  # seconds, less up to a quarter: hosts do not write all at once
# a spool has few files, and each one waits until the one before is acknowledged
_INPUT_INTERVALS = Intervals(scan_after=0.02, scan_every=0.2)
_NO_FILES = Selection(())
logger = logging.getLogger(__name__)


@asynccontextmanager
async def _run_with(*works: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.TaskGroup]:
    """Run works beside the body, and cancel them at its end; raises the first error alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield group
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise pick_error(errors) from None


class Agent:
    """One run of the shipper for one host."""

    def __init__(
        self,
        settings: ShipperSettings,
        host: str,
        clock: Callable[[], int],
        intervals: Intervals | None = None,
    ) -> None:
        """Connect to nothing yet; `clock` is nanoseconds since the epoch."""
        self._settings = settings
        self._host = host
        self._clock = clock
        kind = Publisher if settings.ack else UnacknowledgedPublisher
        denial = settings.explain_denial(host)
        self._publisher = kind(connection_for(settings, host), host, clock, denial)
        if settings.once:
            self._publisher.patience = settings.patience.total_seconds()
        self._spool: Spool | None = None
        intervals = intervals or (_INPUT_INTERVALS if settings.is_input else Intervals())
        self._meter, follower = AgentMeter(clock), self._follower(_NO_FILES, Positions())
        self._loop = ShippingLoop(follower, self._publisher, settings, self._meter, intervals)
        code = Exit.FAILED if settings.once else Exit.DONE
        self._service = Service(self, self._change, self._end, code)

    async def run(self, notifier: Notifier, reread: Callable[[], ShipperSettings]) -> None:
        """Ship until a signal or, with `once`, until all that is there is acknowledged.

        `reread` reads the settings again, in a thread, and raises `OperatorError` kinds for bad
        ones. Raises `OperatorError` kinds; writes the positions unless another agent owns them.
        """
        if not await self._service.run(notifier, reread, self.work(), self._background()):
            await self._end_early()

    def _background(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            # libraries that other agents do not need
            from nats_logship.app.pages import page_server
            from shipper.status.metrics import make_pages

            yield page_server(address, make_pages(self.report, self._meter))
        yield status_socket(self._host, self.report)

    def _end(self) -> float:
        self._loop.stop()
        # a broker that is away or full, or a pause, will not be over in time
        is_landing = self._loop.sender.is_in_flight and not self._publisher.obstacle
        return _LANDING if is_landing else _READING

    async def _end_early(self) -> None:
        """Log what is left; raises `OperatorError` for what the next start does not find."""
        spool = self._spool
        unread = await asyncio.to_thread(spool.stop) if spool else 0
        if self._settings.once:
            raise OperatorError("stopped before all was shipped; run again to ship the rest")
        if self._loop.sender.unacknowledged() or (spool and spool.behind):
            logger.info("ended; the next start with the same --file ships what is not acknowledged")
        if spool and unread:
            raise OperatorError(
                f"ended, and {unread} bytes of standard input were not read"
                f"{spool.trouble and f' ({spool.trouble})'}: they are lost unless another process "
                "holds the pipe open; stop the writer of the pipe first"
            )

    async def work(self) -> None:
        """Ship as `run` does, without service manager, status and signals; ends when cancelled."""
        try:
            if self._settings.is_input:
                from shipper.sources.stdin import open_spool  # a library that files do not need

                folder, new_file = self._settings.spool_dir, self._publisher.new_file
                spooling = asyncio.to_thread(open_spool, folder, self._host, new_file, self._clock)
                self._spool = await spooling
            if self._settings.once:
                # before the claim, which ends another agent
                if self._spool is None:
                    await asyncio.to_thread(require_files, self._settings.selection)
                await self._publisher.connection.connect(self._settings.patience.total_seconds())
            async with _run_with(self._publisher.config.run()):
                await self._run_sessions()
        finally:
            await self._loop.follower.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._publisher.connection.close()

    async def _run_sessions(self) -> None:
        """Run one session after the other: claim, go to the positions of the stream, ship."""
        acknowledged = self._loop.acknowledged
        acknowledged.positions = await self._publisher.in_time(self._open_first_session())
        while True:
            await self._rewind()
            with suppress(SessionLost):
                return await self._run_session()

    async def _open_first_session(self) -> Positions:
        """Return the positions; raises `OperatorError` for an agent that the claim would end."""
        publisher = self._publisher
        await publisher.prepare()
        if not self._settings.take_over:
            await require_alone(self._host, publisher.config.partitions.time)
        return await publisher.open_session(Positions())

    async def _rewind(self) -> None:
        """Have the files read on from the positions; known files stay open."""
        loop = self._loop
        has_begun, positions = loop.has_scanned, loop.acknowledged.positions
        if not has_begun or not await loop.follower.rewind(positions.files):
            await loop.follower.close()
            selection = self._settings.selection
            if self._spool is not None:
                selection = _NO_FILES  # until the spool selects a segment
            elif has_begun:
                # files that came while the subject was claimed again came after the start
                selection = replace(selection, from_end=False)
            loop.follower = self._follower(selection, positions)

    def _follower(self, selection: Selection, positions: Positions) -> Follower:
        settings = self._settings
        return Follower(
            selection,
            positions.files.values(),
            new_id=self._publisher.new_file,
            clock=self._clock,
            grace=settings.grace.total_seconds(),
            hold=settings.hold_deleted.total_seconds(),
            records=settings.record_rules,
            open_files=most_open_files(),
            poll_every=settings.poll_every.total_seconds(),
            listen=settings.watch,
        )

    async def _run_session(self) -> None:
        loop, spool = self._loop, self._spool
        await self._ship_and_save()
        if spool is not None and spool.is_done:
            await asyncio.to_thread(spool.finish)
        elif loop.stopping.is_set():
            await self._end_early()
        elif self._settings.once:
            loop.goals.conclude(loop.follower, self._settings.selection.patterns)

    async def _ship_and_save(self) -> None:
        """Ship, and save the positions meanwhile and at the end, unless another agent owns them."""
        is_owner = True
        try:
            async with _run_with(self._save_positions(), self._follow_spool()) as group:
                await self._loop.run(group)
        except (FencedError, SessionLost):
            is_owner = False
            raise
        finally:
            if is_owner:  # a start reads from the stream what cannot be written soon
                with suppress(TimeoutError, FencedError):
                    async with asyncio.timeout(_CLOSING):
                        await self._publisher.snapshots.try_write(self._loop.acknowledged.positions)

    async def _save_positions(self) -> None:
        """Save positions until cancelled; raises `FencedError` if a newer agent has saved some."""
        acknowledged = self._loop.acknowledged
        while True:
            await asyncio.sleep(_SNAPSHOT_EVERY * random.uniform(0.75, 1.0))
            await acknowledged.forget_gone(self._loop.follower, self._clock())
            await self._publisher.snapshots.try_write(acknowledged.positions)

    async def _follow_spool(self) -> None:
        if self._spool is not None:
            await self._spool.run(self._loop.acknowledged, self._loop.follower)
            self._loop.stop()

    async def _change(self, settings: ShipperSettings) -> None:
        if settings.once or self._settings.once:
            raise OperatorError("with --once settings are not read again")
        self._settings, changes = reload(self._settings, settings)
        log_to_stderr(self._settings)
        self._loop.change(self._settings)
        follower = self._loop.follower
        grace, hold = self._settings.grace, self._settings.hold_deleted
        rules = self._settings.record_rules
        follower.change_limits(grace.total_seconds(), hold.total_seconds(), rules)
        if self._spool is None:
            await follower.retarget(self._settings.selection)
        logger.info("settings reloaded; %s", changes)

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker or the end of a pause."""
        return self._loop.has_scanned or bool(self._publisher.obstacle)

    def is_moving(self, most: float) -> bool:
        """Whether no scan and no read takes longer than `most` seconds."""
        return (self._reading_seconds() or 0.0) < most

    def _reading_seconds(self) -> float | None:
        since = self._loop.follower.busy_since
        return None if since is None else asyncio.get_running_loop().time() - since

    def status(self) -> str:
        """Return the status in one line."""
        report = self.report()
        summary = report.summary if report.files or not report.unhealthy else ""
        return ", ".join(filter(None, (summary, report.held_back, report.unhealthy)))

    def report(self) -> HostReport:
        """Return the present status."""
        publisher, loop, meter, now = self._publisher, self._loop, self._meter, self._clock()
        follower, read_at = loop.follower, loop.sender.unacknowledged()
        position, spool = loop.acknowledged.position, self._spool
        spooled = spool.behind if spool else None
        return HostReport(
            host=self._host,
            running=True,
            files=list_files(follower.files(), position, read_at, now, spooled),
            broker=publisher.config.partitions.time,
            pid=os.getpid(),
            last_ack=format_time(meter.last_ack, "seconds") if meter.last_ack else None,
            waiting_for=publisher.connection.away or publisher.waiting.reason,
            paused=str(publisher.config.pause or ""),
            interval_seconds=publisher.config.interval.seconds,
            troubles=tuple(f"{one.path}: {one.text}" for one in follower.troubles),
            unread=tuple(f"{path}: {text}" for path, text in meter.unread.items()),
            has_scanned=loop.has_scanned,
            open_files=follower.open_files,
            reading_seconds=self._reading_seconds(),
            waiting_seconds=seconds_since(read_at.values(), now),
            spool_trouble=spool.trouble if spool else "",
            retries=publisher.waiting.retries,
        )
