"""The wiring of a shipper: claim, rebuild, follow, publish, save, and the order in which all of it ends.

    files ──follower──▶ blocks ──shipping──▶ rounds ──publisher──▶ stream
                                    │                                 │
              LOGS_POSITIONS ◀──keeper─── positions ◀───── ack ───────┘

    view, over all of it ──▶ service (systemd), live (status), listening (metrics, health), new settings

Stop order: 1. stop reading, 2. wait for the round in flight (bounded), 3. write the positions, 4. close the connection.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from nats_logship.app.exits import Exit, FencedError, OperatorError, pick_error
from nats_logship.app.files import FOLDER_ID, make_folder
from nats_logship.app.program import log_to_stderr
from nats_logship.app.service import Notifier, Service
from nats_logship.wire.positions import Positions
from shipper.intervals import Intervals
from shipper.loop import ShippingLoop
from shipper.publish.publisher import Publisher, SessionLost
from shipper.publish.waiting import connection_for
from shipper.settings import ShipperSettings, reload
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection, has_magic
from shipper.sources.files.reader import most_open_files
from shipper.sources.stdin import Spool
from shipper.status.live import require_alone, status_socket
from shipper.status.report import AgentMeter, AgentView

_LANDING = 6.0  # seconds for a round in flight when the agent must end; all ends within 10
_READING = 1.0  # and for what is under way when none is, or the broker is known to be away
_CLOSING = 2.0
_SNAPSHOT_EVERY = 60.0  # seconds, of which a random quarter is left out: not all hosts at once
# a spool has few files, one after another, and each waits for the one before to be acknowledged
_INPUT_INTERVALS = Intervals(scan_after=0.02, scan_every=0.2)
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
        """Remember what to do; `clock` is nanoseconds since the epoch."""
        self._settings = settings
        self._host = host
        self._clock = clock
        connection = connection_for(settings, host)
        self._sessions = Publisher(connection, host, clock, settings.credential_host)
        if settings.once:
            self._sessions.patience = settings.patience.total_seconds()
        intervals = intervals or (_INPUT_INTERVALS if settings.is_input else Intervals())
        follower = self._follower(Selection(()), Positions())
        self._shipping = ShippingLoop(
            follower, self._sessions, settings, AgentMeter(clock), intervals
        )
        self._view = AgentView(host, self._shipping, clock)
        code = Exit.FAILED if settings.once else Exit.DONE
        self._service = Service(self._view, self._change, self._end, code)

    async def run(self, notifier: Notifier, reread: Callable[[], ShipperSettings]) -> None:
        """Ship until a signal or, with `once`, until all that is there is acknowledged.

        `reread` reads the settings again, in a thread, and raises `OperatorError` kinds when they will not do. Raises
        `OperatorError` kinds; positions are written in every case but that of another owner.
        """
        if not await self._service.run(notifier, reread, self.work(), self._background()):
            await self._end_early()

    def _background(self) -> Iterator[AbstractAsyncContextManager[object]]:
        if address := self._settings.listen:
            from nats_logship.app.pages import (
                health_page,
                page_server,
            )  # libraries that nobody else needs
            from shipper.status.metrics import agent_metrics

            view = self._view
            health = lambda: health_page(view.health(), view.paused or "ok")  # noqa: E731
            yield page_server(address, {"/metrics": agent_metrics(view), "/healthz": health})
        yield status_socket(self._host, self._view.report)

    def _end(self) -> float:
        self._shipping.stop()
        # a broker that is away or full now will not be back in time, and a pause will not be over
        is_landing = self._shipping.is_in_flight and not self._sessions.obstacle
        return _LANDING if is_landing else _READING

    async def _end_early(self) -> None:
        """Say what is left; raises `OperatorError` for what the next start does not find."""
        spool = self._view.spool
        unread = await asyncio.to_thread(spool.stop) if spool else 0
        if self._settings.once:
            raise OperatorError("stopped before all was shipped; start it again to go on")
        if self._shipping.unacknowledged() or (spool and spool.behind):
            logger.info(
                "ended; what is not acknowledged is shipped at the next start with the same --file"
            )
        if spool and unread:
            raise OperatorError(
                f"ended, and {unread} bytes of standard input were not read"
                f"{spool.trouble and f' ({spool.trouble})'}: they are lost with a pipe that nobody "
                "else holds open; stop what writes to it first"
            )

    async def work(self) -> None:
        """Ship as `run` does, without a service manager, status or signals; it ends when it is cancelled."""
        if self._settings.is_input:
            self._view.spool = await asyncio.to_thread(self._make_spool)
        try:
            if self._settings.once:
                # before the subject is claimed, which ends another agent
                if self._view.spool is None:
                    await asyncio.to_thread(_require_files, self._settings.selection)
                await self._sessions.connection.connect(self._settings.patience.total_seconds())
            async with _along(self._sessions.config.run()):
                await self._ship_to_the_end()
        finally:
            await self._shipping.follower.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._sessions.connection.close()

    async def _ship_to_the_end(self) -> None:
        """Ship in one session after the other: claim, rebuild the positions, go back to them where they moved, and go on."""
        self._shipping.positions = await self._sessions.in_time(self._first_session())
        while True:
            await self._rewind()
            with suppress(SessionLost):
                return await self._ship()

    async def _first_session(self) -> Positions:
        """Return the positions; raises `OperatorError` for another agent of the host here, before a claim could end that one."""
        sessions = self._sessions
        await sessions.prepare()
        if not self._settings.take_over:
            await require_alone(self._host, sessions.config.partitions.time)
        if self._settings.ack:
            return await sessions.claim(Positions())
        return await sessions.waiting.retry_until_answered(sessions.snapshots.read)

    async def _rewind(self) -> None:
        """Have the files read on from the positions; the follower keeps its open files where it knows all of them."""
        shipping = self._shipping
        has_begun, positions = shipping.has_scanned, shipping.positions
        if not has_begun or not await shipping.follower.rewind(positions.files):
            await shipping.follower.close()
            selection = self._settings.selection
            if self._view.spool is not None:
                selection = Selection(())  # until the spool turns the follower to a segment
            elif has_begun:
                # what comes while the subject is claimed anew came after the start
                selection = replace(selection, from_end=False)
            shipping.follower = self._follower(selection, positions)
        shipping.resize()

    def _follower(self, selection: Selection, positions: Positions) -> Follower:
        settings = self._settings
        return Follower(
            selection,
            positions.files.values(),
            new_id=self._sessions.new_file,
            clock=self._clock,
            grace=settings.grace.total_seconds(),
            hold=settings.hold_deleted.total_seconds(),
            open_files=most_open_files(),
            poll_every=settings.poll_every.total_seconds(),
            listen=settings.watch,
        )

    def _make_spool(self) -> Spool:
        try:
            with make_folder(self._settings.spool_dir, 0o700) as folder:
                os.close(folder.open(FOLDER_ID, os.O_RDONLY | os.O_CREAT, 0o600))
                return Spool(folder.make(self._host, 0o700), self._sessions.new_file, self._clock)
        except OSError as error:
            raise OperatorError(
                f"cannot spool standard input: {error.filename}: {error.strerror}; check --state-dir"
            ) from None

    async def _ship(self) -> None:
        spool = self._view.spool
        await self._ship_and_keep()
        if spool is not None and spool.is_done:
            await asyncio.to_thread(spool.finish)
        elif self._shipping.stopping.is_set():
            await self._end_early()
        elif self._settings.once:
            self._shipping.goals.conclude(
                self._shipping.follower, self._settings.selection.patterns
            )

    async def _ship_and_keep(self) -> None:
        """Ship, and write the positions meanwhile and at the end, but for those of another owner."""
        shipping, is_owner = self._shipping, True
        try:
            async with _along(self._keep_positions(), self._spool_input()) as group:
                await shipping.run(group)
        except (FencedError, SessionLost):
            is_owner = False
            raise
        finally:
            if is_owner:  # what cannot be written soon is read back from the stream at a start
                with suppress(TimeoutError, FencedError):
                    async with asyncio.timeout(_CLOSING):
                        await self._sessions.snapshots.try_write(shipping.positions)

    async def _keep_positions(self) -> None:
        """Write snapshots of the positions until cancelled; raises `FencedError` where a newer agent has written."""
        while True:
            await asyncio.sleep(_SNAPSHOT_EVERY * random.uniform(0.75, 1.0))
            await self._shipping.forget_gone(self._clock())
            await self._sessions.snapshots.try_write(self._shipping.positions)

    async def _spool_input(self) -> None:
        if self._view.spool is not None:
            await self._view.spool.run(self._shipping)
            self._shipping.stop()

    async def _change(self, settings: ShipperSettings) -> None:
        if settings.once or self._settings.once:
            raise OperatorError("with --once nothing is read again")
        self._settings, changes = reload(self._settings, settings)
        log_to_stderr(self._settings)
        self._shipping.change(self._settings)
        follower = self._shipping.follower
        grace, hold = self._settings.grace, self._settings.hold_deleted
        follower.change_limits(grace.total_seconds(), hold.total_seconds())
        if self._view.spool is None:
            await follower.retarget(self._settings.selection)
        logger.info("settings reloaded; %s", changes)


def _require_files(selection: Selection) -> None:
    """Raise `OperatorError` for a path that cannot be read, or where no glob shows a file that can.

    A glob that shows none keeps no other file waiting: it is reported when these are shipped.
    """
    from shipper.status.show import BAD, FINE, check_files  # tables, which an agent shows nobody

    lacking = {}
    for pattern in selection.patterns:
        found = list(check_files(replace(selection, patterns=(pattern,))))
        lacks = [text for level, text in found if level == BAD]
        if lacks and FINE not in dict(found):
            lacking[pattern] = lacks[0]
    is_none_shown = len(lacking) == len(selection.patterns)
    for pattern, text in lacking.items():
        if is_none_shown or not has_magic(pattern):
            raise OperatorError(f"{text}; nothing was shipped; check --file")
