"""The wiring of a shipper: what it starts, runs in sessions, and ends in which order.

Imports go one way: agent → loop → sender → publish → sources.

Stop order: 1. stop reading, 2. wait for the round in flight (bounded), 3. write the positions,
4. close the connection.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from nats_logship.app.exits import Exit, FencedError, OperatorError, pick_error
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import format_time
from nats_logship.app.units import format_size
from nats_logship.wire.positions import Positions
from shipper.clock import Clock
from shipper.loop import Intervals, ShippingLoop
from shipper.once import require_files
from shipper.publish.publisher import Publisher, SessionLost, UnacknowledgedPublisher
from shipper.publish.waiting import connection_for
from shipper.settings import ShipperSettings, reload
from shipper.sources.files.follower import Follower
from shipper.sources.files.reader import most_open_files
from shipper.sources.inputs import find_inputs
from shipper.sources.several import Sources
from shipper.status.live import ask, require_alone, status_socket
from shipper.status.report import AgentMeter, HostReport, list_files, seconds_since

if TYPE_CHECKING:
    from shipper.sources.journal.source import JournalSource
    from shipper.sources.spool import Spool

_LANDING = 6.0  # seconds for a round in flight when the agent must end; all ends within 10
_READING = 1.0  # seconds for a read, if no round is in flight or the broker is away
_CLOSING = 2.0
_ANSWER = 1.0  # seconds for the status of an agent that we take over from
_CHECKS_APART = 1.0  # seconds
_BACKLOG = 4 * 1024**2  # bytes; less is shipped at once
_SNAPSHOT_EVERY = 60.0  # seconds, less up to a quarter: hosts do not write all at once
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
        clock: Clock,
        intervals: Intervals | None = None,
    ) -> None:
        """Connect to nothing yet."""
        self._settings = settings
        self._host = host
        self._clock, self._began = clock, clock()
        kind = Publisher if settings.ack else UnacknowledgedPublisher
        denial = settings.explain_denial(host)
        self._publisher = kind(connection_for(settings, host), host, clock, denial)
        if settings.once:
            self._publisher.patience = settings.patience.total_seconds()
        self._meter = AgentMeter(clock.wall)
        self._sources = Sources()
        self._inputs: Mapping[str, str] = {}
        self._files: Follower | None = None
        self._spools: list[Spool] = []
        self._journal: JournalSource | None = None
        self._asked = asyncio.Event()
        self._lost: list[str] = []  # what the next start does not find
        self._loop = ShippingLoop(
            self._sources, self._publisher, settings, self._meter, intervals or Intervals()
        )
        code = Exit.FAILED if settings.once else Exit.DONE
        self._service = Service(self, self._change, self._end, code)

    async def run(self, notifier: Notifier, reread: Callable[[], ShipperSettings]) -> None:
        """Ship until a signal or, with `once`, until all that is there is acknowledged.

        `reread` reads the settings again, in a thread, and raises `OperatorError` kinds for bad
        ones. Raises `OperatorError` kinds; writes the positions unless another agent owns them.
        """
        ends = await self._service.run(notifier, reread, self.work(), self._background())
        if self._loop.stopping.is_set() or not ends:
            self._end_early()

    def _background(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            # libraries that other agents do not need
            from nats_logship.app.pages import page_server
            from shipper.status.metrics import make_pages

            yield page_server(address, make_pages(self.report, self._meter))
        yield status_socket(self._host, self._answer)

    def _answer(self) -> HostReport:
        """Return the report; who asks may have taken over, so the claim is checked soon."""
        self._asked.set()
        return self.report()

    def _end(self) -> float:
        self._loop.stop()
        # a broker that is away or full, or a pause, will not be over in time
        is_landing = self._loop.sender.is_in_flight and not self._publisher.obstacle
        return _LANDING if is_landing else _READING

    def _end_early(self) -> None:
        """Log what is left; raises `OperatorError` for what the next start does not find."""
        if self._lost:
            raise OperatorError("ended, and not all was read; stop the writers of pipes first")
        if self._settings.once:
            raise OperatorError("stopped before all was shipped; run again to ship the rest")
        if not self._loop.has_scanned:
            logger.info("stopped before files were scanned; the next start ships their lines")
            return
        report = self.report()
        is_behind = report.behind_bytes or report.behind_entries
        text = "; the next start with the same options ships them" if is_behind else ""
        logger.info("stopped, %s unshipped%s", report.behind, text)

    async def work(self) -> None:
        """Ship as `run` does, without service manager, status and signals; ends when cancelled."""
        try:
            await asyncio.to_thread(self._open_sources)
            if self._settings.once:
                # before the claim, which ends another agent
                selection = self._settings.select_files(self._inputs)
                await asyncio.to_thread(require_files, selection)
                await self._publisher.connection.connect(self._settings.patience.total_seconds())
            async with _run_with(self._publisher.config.run()):
                await self._run_sessions()
        finally:
            self._lost = await self._sources.close()
            for text in self._lost:
                logger.warning("%s", text)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._publisher.connection.close()

    async def _run_sessions(self) -> None:
        """Run one session after the other: claim, go to the positions of the stream, ship."""
        acknowledged = self._loop.acknowledged
        acknowledged.positions = await self._publisher.in_time(self._open_first_session())
        while True:
            # what is open stays open
            await self._sources.rewind(acknowledged.positions.files)
            with suppress(SessionLost):
                return await self._run_session()

    async def _open_first_session(self) -> Positions:
        """Return the positions; raises `OperatorError` for an agent that the claim would end.

        With `take_over` that agent is asked for its status, and so finds the claim and ends.
        """
        publisher = self._publisher
        await publisher.prepare()
        if self._settings.take_over:
            positions = await publisher.open_session(Positions())
            await ask(self._host, _ANSWER)
            return positions
        await require_alone(self._host, publisher.config.partitions.time)
        return await publisher.open_session(Positions())

    def _open_sources(self) -> None:
        """Begin to spool inputs, and get ready to follow files; blocks."""
        settings = self._settings
        given: dict[str, Any] = {
            "new_id": self._publisher.new_file,
            "clock": self._clock.wall,
            "wake": self._sources.wake,
        }
        records = settings.record_rules
        self._inputs = inputs = find_inputs(settings.file)
        if inputs:
            from shipper.sources.spool import open_spools  # which files do not need

            paths, folder, once = inputs.values(), settings.spool_dir, settings.once
            self._spools = open_spools(
                *(paths, folder, self._host),
                once=once,
                takes_over=settings.take_over,
                records=records,
                **given,
            )
            for spool in self._spools:
                self._sources.add(spool)
        if settings.journal:
            from shipper.sources.journal.source import JournalSource  # as above

            self._journal = JournalSource(settings.journal_options, **given)
            self._sources.add(self._journal)
        selection = settings.select_files(inputs)
        if selection.patterns:
            self._files = Follower(
                selection,
                (),
                grace=settings.grace.total_seconds(),
                hold=settings.hold_deleted.total_seconds(),
                records=records,
                open_files=most_open_files(),
                poll_every=settings.poll_every.total_seconds(),
                listen=settings.watch,
                is_only=not (inputs or settings.journal),
                **{**given, "clock": self._clock},
            )
            self._sources.add(self._files)

    async def _run_session(self) -> None:
        await self._ship_and_save()
        if not self._loop.stopping.is_set():
            lines = format_count(self._meter.lines, "line", form=",")
            size = format_size(self._meter.bytes)
            files = format_count(len(self._sources.files()), "file")
            logger.info("shipped %s, %s, of %s", lines, size, files)
            named = self._settings.select_files(self._inputs).patterns
            self._loop.goals.conclude(self._sources, named)

    async def _ship_and_save(self) -> None:
        """Ship, and save the positions meanwhile and at the end, unless another agent owns them."""
        is_owner = True
        try:
            async with _run_with(self._save_positions(), self._check_claim()) as group:
                await self._loop.run(group)
        except (FencedError, SessionLost):
            is_owner = False
            raise
        finally:
            if is_owner:  # a start reads from the stream what cannot be written soon
                with suppress(TimeoutError, FencedError):
                    async with asyncio.timeout(_CLOSING):
                        positions = self._loop.acknowledged.positions
                        await self._publisher.snapshots.write_last(positions)

    async def _save_positions(self) -> None:
        """Save positions until cancelled; raises `FencedError` if a newer agent has saved some."""
        acknowledged = self._loop.acknowledged
        while True:
            await asyncio.sleep(_SNAPSHOT_EVERY * random.uniform(0.75, 1.0))
            today = self._clock().without_step(self._began)
            await acknowledged.forget_gone(self._sources, today)
            await self._publisher.snapshots.try_write(acknowledged.positions)

    async def _check_claim(self) -> None:
        """Check whenever somebody asks for the status whether a newer agent owns the host.

        An agent with nothing to ship would not notice. Never returns; raises `FencedError`.
        """
        while True:
            await self._asked.wait()
            self._asked.clear()
            if owner := self._publisher.owner:
                await self._publisher.snapshots.confirm(owner)
            await asyncio.sleep(_CHECKS_APART)

    async def _change(self, settings: ShipperSettings) -> None:
        if settings.once or self._settings.once:
            raise OperatorError("with --once settings are not read again")
        follows = self._files is not None
        self._settings, changes = await asyncio.to_thread(
            reload, self._settings, settings, self._inputs, follows=follows
        )
        log_to_stderr(self._settings)
        self._loop.change(self._settings)
        rules = self._settings.record_rules
        for spool in self._spools:
            spool.change(rules)
        if self._files is not None:
            grace, hold = self._settings.grace, self._settings.hold_deleted
            self._files.change_limits(grace.total_seconds(), hold.total_seconds(), rules)
            await self._files.retarget(self._settings.select_files(self._inputs))
        if self._journal is not None:
            self._journal.change(self._settings.journal_rules)
        logger.info("settings reloaded; %s", changes)

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker or the end of a pause."""
        return self._loop.has_scanned or bool(self._publisher.obstacle)

    def is_moving(self, most: float) -> bool:
        """Whether no scan and no read takes longer than `most` seconds."""
        return (self._reading_seconds() or 0.0) < most

    def _reading_seconds(self) -> float | None:
        since = self._sources.busy_since
        return None if since is None else asyncio.get_running_loop().time() - since

    def status(self) -> str:
        """Return the status in one line."""
        report = self.report()
        summary = report.summary if report.files or not report.unhealthy else ""
        return ", ".join(filter(None, (summary, report.held_back, report.unhealthy)))

    def left(self) -> int:
        """Return the bytes that are not acknowledged, if they are more than a round."""
        left = self.report().behind_bytes
        return left if left > _BACKLOG else 0

    def report(self) -> HostReport:
        """Return the present status."""
        publisher, loop, meter, now = self._publisher, self._loop, self._meter, self._clock.wall()
        sources, read_at = self._sources, loop.sender.unacknowledged()
        return HostReport(
            host=self._host,
            running=True,
            files=list_files(sources.files(), loop.acknowledged.position, read_at, now),
            broker=publisher.config.partitions.time,
            pid=os.getpid(),
            agent=publisher.owner,
            last_ack=format_time(meter.last_ack, "seconds") if meter.last_ack else None,
            waiting_for=publisher.connection.away or publisher.waiting.reason,
            paused=str(publisher.config.pause or ""),
            interval_seconds=publisher.config.interval.seconds,
            troubles=tuple(f"{one.path}: {one.text}" for one in sources.troubles),
            unread=tuple(meter.unread),
            lost=tuple(meter.vacuumed),
            has_scanned=loop.has_scanned,
            open_files=sources.open_files,
            reading_seconds=self._reading_seconds(),
            waiting_seconds=seconds_since(read_at.values(), now),
            obstacle=sources.obstacle,
            retries=publisher.waiting.retries,
            max_rate_bytes=loop.sender.limit.rate,
            rate_held_seconds=loop.sender.limit.holding_seconds,
        )
