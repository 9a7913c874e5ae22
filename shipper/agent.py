"""The wiring of a shipper: claim, rebuild, follow, publish, save, and the order in which all of it ends.

    files ──follower──▶ blocks ──shipping──▶ rounds ──publisher──▶ stream
                                    │                                 │
              LOGS_POSITIONS ◀──keeper─── positions ◀───── ack ───────┘

    view, over all of it ──▶ service (systemd), live (status), listening (metrics, health), new settings

Stop order: 1. stop reading, 2. wait for the round in flight (bounded), 3. write the positions, 4. close the connection.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from broker.app.exits import Exit, FencedError, OperatorError, leading
from broker.app.files import make_folder
from broker.app.pages import PageServer, health_page
from broker.app.program import log_to_stderr
from broker.app.service import Notifier, Service
from broker.client.connection import BrokerAway
from broker.wire.positions import Positions
from shipper.publish.rounds import NEARBY_SIZE, Round
from shipper.publish.session import SessionLost, Sessions
from shipper.publish.waiting import connection_for
from shipper.settings import ShipperSettings, reload
from shipper.shipping import Pace, Shipping
from shipper.spool import Spool
from shipper.status.live import require_alone, status_socket
from shipper.status.report import AgentMeter, AgentView
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection
from shipper.tail.reader import most_open_files

_LANDING = 6.0  # seconds for a round in flight when the agent must end; all ends within 10
_READING = 1.0  # and for what is under way when none is, or the broker is known to be away
_CLOSING = 2.0
_LONGEST_PAUSE = (
    0.2  # seconds between sessions: somebody else may write to our subject all the time
)
_SNAPSHOT_EVERY = 60.0  # seconds, of which a random quarter is left out: not all hosts at once
# a spool has few files, one after another, and each waits for the one before to be acknowledged
_INPUT_PACE = Pace(scan_after=0.02, cover_every=0.2)
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


@asynccontextmanager
async def _along(*works: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.TaskGroup]:
    """Run works beside what is entered, and cancel them at its end; raises the first error by itself, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
            yield group
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as errors:
        raise leading(errors) from None


class _Moved(Exception):
    """A session began at other positions than the one before had come to, or takes smaller rounds: the files are to be read again.

    Its argument are the positions.
    """


class Agent:
    """One run of the shipper for one host."""

    def __init__(
        self,
        settings: ShipperSettings,
        host: str,
        clock: Callable[[], int],
        pace: Pace | None = None,
    ) -> None:
        """Remember what to do; `clock` is nanoseconds since the epoch."""
        self._settings = settings
        self._host = host
        self._clock = clock
        self._pace = pace or (_INPUT_PACE if settings.is_input else Pace())
        connection = connection_for(settings, host)
        self._sessions = Sessions(connection, host, clock, settings.credential_host)
        self._view = AgentView(host, self._sessions, AgentMeter(clock), clock)
        code = Exit.FAILED if settings.once else Exit.DONE
        self._service = Service(self._view, self._change, self._end, code)
        self._patience = settings.patience.total_seconds() if settings.once else None

    async def run(self, notifier: Notifier, reread: Callable[[], ShipperSettings]) -> None:
        """Ship until a signal or, with `once`, until all that is there is acknowledged.

        `reread` reads the settings again, in a thread, and raises `OperatorError` kinds when they will not do. Raises
        `OperatorError` kinds; positions are written in every case but that of another owner.
        """
        if not await self._service.run(notifier, reread, self.work(), self._background()):
            self._end_early()

    def _background(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            from shipper.status.metrics import agent_metrics  # a library that nobody else needs

            view = self._view
            health = lambda: health_page(view.health(), view.paused or "ok")  # noqa: E731
            yield PageServer(address, {"/metrics": agent_metrics(view), "/healthz": health})
        yield status_socket(self._host, self._view.report)

    def _end(self) -> float:
        shipping, is_in_flight = self._view.shipping, False
        if shipping is not None:
            shipping.follower.wake.set()
            is_in_flight = shipping.is_in_flight
        # a broker that is away or full now will not be back in time, and a pause will not be over
        return _LANDING if is_in_flight and not self._view.obstacle else _READING

    def _end_early(self) -> None:
        shipping, spool = self._view.shipping, self._view.spool
        if self._settings.once:
            raise OperatorError("stopped before all was shipped; start it again to go on")
        if (shipping and shipping.unacknowledged()) or (spool and spool.behind):
            logger.info(
                "ended; what is not acknowledged is shipped at the next start with the same --file"
            )

    async def work(self) -> None:
        """Ship as `run` does, without a service manager, status or signals; it ends when it is cancelled."""
        if self._settings.is_input:
            self._view.spool = await asyncio.to_thread(self._make_spool)
        try:
            if self._patience is not None:
                # before the subject is claimed, which ends another agent
                if self._view.spool is None:
                    await asyncio.to_thread(_require_files, self._settings.selection)
                await self._sessions.connection.once(self._patience)
            async with _along(self._sessions.config.run()):
                await self._ship_to_the_end()
        finally:
            if self._view.shipping is not None:
                await self._view.shipping.follower.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._sessions.connection.close()

    async def _ship_to_the_end(self) -> None:
        """Ship in one session after the other: claim, rebuild the positions, go back to them where they moved, and go on."""
        positions = await self._in_time(self._first_session())
        while True:
            try:
                return await self._ship(await self._follower_at(positions), positions)
            except _Moved as moved:
                (positions,) = moved.args

    async def _first_session(self) -> Positions:
        """Return the positions; without acknowledgements there is nothing to claim.

        Raises `OperatorError` when another agent of the host lives on this machine, before it could be deposed by a claim.
        """
        sessions = self._sessions
        await sessions.prepare()
        if not self._settings.take_over:
            await require_alone(self._host, sessions.config.partitions.time)
        if self._settings.ack:
            return await sessions.claim(Positions())
        return await sessions.waiting.until_answered(sessions.snapshots.read)

    async def _publish(self, shipping: Shipping, round_: Round) -> int:
        """Publish a round, in the next session where one is lost; raises `_Moved` where the positions moved meanwhile.

        Whoever writes to our subject again and again costs the round a claim, not a scan and another reading.
        """
        sessions = self._sessions
        publish = sessions.publish if self._settings.ack else sessions.publish_unacknowledged
        while True:
            try:
                return await publish(round_)
            except SessionLost as lost:
                logger.info("%s; claiming again", lost)
            await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE))
            known = shipping.positions
            await sessions.prepare()
            found = await sessions.claim(known) if self._settings.ack else known
            if found.files != known.files or len(round_.payload) > sessions.max_payload:
                raise _Moved(found)
            shipping.positions = replace(shipping.positions, covered=found.covered)

    async def _in_time(self, request: Awaitable[Answer]) -> Answer:
        """Wait for the broker; with `once` no longer than the patience."""
        try:
            async with asyncio.timeout(self._patience):
                return await request
        except TimeoutError:
            reason = self._view.obstacle or "no answer from the broker"
            raise BrokerAway(
                f"gave up after {self._patience:g} s: {reason}; what is not acknowledged will be shipped the next time"
            ) from None

    async def _follower_at(self, positions: Positions) -> Follower:
        """Return the follower at these positions; it keeps its open files where that can be."""
        settings, most = self._settings, self._sessions.most_bytes
        before = self._view.shipping.follower if self._view.shipping else None
        block_size, max_line = most(NEARBY_SIZE), most(settings.max_line)
        if before is not None:
            if await before.rewind(positions.files):
                before.resize(block_size, max_line)
                return before
            await before.close()
        selection = settings.selection
        if self._view.spool is not None:
            selection = Selection(())  # until the spool turns the follower to a segment
        elif before is not None:
            # what comes while the subject is claimed anew came after the start
            selection = replace(selection, from_end=False)
        return Follower(
            selection,
            positions.files.values(),
            new_id=self._sessions.new_file,
            clock=self._clock,
            block_size=block_size,
            max_line=max_line,
            grace=settings.grace.total_seconds(),
            hold=settings.hold_deleted.total_seconds(),
            open_files=most_open_files(),
            poll_every=settings.poll_every.total_seconds(),
            listen=settings.watch,
        )

    def _make_spool(self) -> Spool:
        try:
            with make_folder(self._settings.spool_dir, 0o700) as folder:
                return Spool(folder.make(self._host, 0o700), self._sessions.new_file, self._clock)
        except OSError as error:
            raise OperatorError(
                f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
            ) from None

    async def _ship(self, follower: Follower, positions: Positions) -> None:
        view, stopping = self._view, self._service.asked
        shipping = Shipping(
            follower,
            self._sessions,
            lambda round_: self._in_time(self._publish(shipping, round_)),
            positions,
            self._loop_settings(),
            stopping,
            view.meter,
            self._pace,
        )
        follower.stored = shipping.position
        view.shipping = shipping
        await self._ship_and_keep(shipping)
        if view.spool is not None and view.spool.is_done:
            return
        if stopping.is_set():
            self._end_early()
        elif self._settings.once:
            shipping.conclude()

    def _loop_settings(self) -> ShipperSettings:
        """Return the settings with rounds no larger than the broker takes."""
        size = self._sessions.most_bytes(self._settings.round_size)
        return self._settings.model_copy(update={"round_size": size})

    async def _ship_and_keep(self, shipping: Shipping) -> None:
        """Ship, and write the positions meanwhile and at the end, but for those of another owner."""
        snapshots, is_owner = self._sessions.snapshots, True
        works = self._keep_positions(shipping), self._spool_input(shipping)
        try:
            async with _along(*works) as group:
                await shipping.run(group, self._save)
        except (FencedError, _Moved):
            is_owner = False
            raise
        finally:
            if is_owner:  # what cannot be written soon is read back from the stream at a start
                with suppress(TimeoutError, FencedError):
                    async with asyncio.timeout(_CLOSING):
                        await snapshots.try_write(shipping.positions)

    async def _keep_positions(self, shipping: Shipping) -> None:
        """Write snapshots of the positions until cancelled; raises `FencedError` where a newer agent has written."""
        while True:
            await asyncio.sleep(_SNAPSHOT_EVERY * random.uniform(0.75, 1.0))
            await shipping.forget_gone(self._clock())
            await self._sessions.snapshots.try_write(shipping.positions)

    async def _spool_input(self, shipping: Shipping) -> None:
        if self._view.spool is not None:
            await self._view.spool.run(shipping)
            self._service.asked.set()
            shipping.follower.wake.set()

    async def _save(self, positions: Positions) -> None:
        """Return once the broker has the positions; with `once` no later than the patience ends."""
        snapshots, waiting = self._sessions.snapshots, self._sessions.waiting
        await self._in_time(waiting.until_answered(lambda: snapshots.write(positions)))

    async def _change(self, settings: ShipperSettings) -> None:
        if settings.once or self._settings.once:
            raise OperatorError("with --once nothing is read again")
        self._settings, changes = reload(self._settings, settings)
        log_to_stderr(self._settings)
        if shipping := self._view.shipping:
            shipping.change(self._loop_settings())
            grace, hold = self._settings.grace, self._settings.hold_deleted
            shipping.follower.change_limits(grace.total_seconds(), hold.total_seconds())
            if self._view.spool is None:
                await shipping.follower.retarget(self._settings.selection)
        logger.info("settings reloaded; %s", changes)


def _require_files(selection: Selection) -> None:
    """Raise `OperatorError` for a pattern that shows no file which can be read."""
    from shipper.status.show import BAD, FINE, check_files  # tables, which an agent shows nobody

    for pattern in selection.patterns:
        found = list(check_files(replace(selection, patterns=(pattern,))))
        lacks = [text for level, text in found if level == BAD]
        if lacks and FINE not in dict(found):
            raise OperatorError(f"{lacks[0]}; nothing was shipped; check --file")
