"""The wiring of a shipper: claim, rebuild, follow, publish, save, and the order in which all of it ends.

    files ──follower──▶ blocks ──shipping──▶ rounds ──publisher──▶ stream
                                    │                                 │
              positions.json ◀──keeper─── positions ◀───── ack ───────┘

Stop order: 1. stop reading, 2. wait for the round in flight (bounded), 3. save the positions, 4. close the connection.
"""

import asyncio
import itertools
import logging
import secrets
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from broker.connection import BrokerAway, Connection
from broker.exits import FencedError, OperatorError, leading
from shipper.cache import Cache
from shipper.crew import Crew, Errand, follower_for, muster
from shipper.expression import Expression
from shipper.keeper import Keeper
from shipper.meter import Meter
from shipper.positions import Positions
from shipper.publisher import OwnershipLost
from shipper.settings import ShipperSettings
from shipper.shipping import Pace, Shipping
from shipper.sieve import Rules
from shipper.waiting import Waiting

__all__ = ["Agent", "connection_for"]

_LANDING = 6.0  # seconds for a round in flight when the agent must end; all ends within 10
_READING = 1.0  # and for what is under way when none is in flight
_CLOSING = 2.0
logger = logging.getLogger(__name__)


def connection_for(settings: ShipperSettings, host: str) -> Connection:
    """Return the connection of a host's shipper; answers come to inboxes that its rights can be limited to."""
    return Connection(settings.server, f"logshipper {host}", f"_INBOX_{host}")


class Agent:
    """One run of the shipper for one host."""

    def __init__(
        self, settings: ShipperSettings, host: str, folder: Path, clock: Callable[[], int]
    ) -> None:
        """Remember what to do; `folder` is that of the host's positions, `clock` nanoseconds since the epoch."""
        connection, numbers = connection_for(settings, host), itertools.count(1)
        self._errand = Errand(
            settings,
            host,
            connection,
            Waiting(),
            secrets.token_hex(4),
            clock,
            lambda: next(numbers),
        )
        self._cache = Cache(folder)
        self._keeper = Keeper(self._cache, clock)
        self._meter = Meter(clock)
        self._stopping = asyncio.Event()
        self._limit = asyncio.Timeout(None)
        self._shipping: Shipping | None = None
        self._patience = settings.patience.total_seconds() if settings.once else None

    async def run(self) -> None:
        """Ship until a signal or, with `once`, until all that is there is acknowledged.

        Raises `OperatorError` kinds; positions are saved in every case but that of another owner.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        try:
            async with self._limit:
                await self._work()
        except TimeoutError:
            self._end_early()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSING):
                    await self._errand.connection.close()

    def _stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        flying = self._shipping is not None and self._shipping.is_in_flight
        with suppress(RuntimeError):  # the work is done already
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(now + (_LANDING if flying else _READING))

    def _end_early(self) -> None:
        if self._errand.settings.once:
            raise OperatorError("stopped before all was shipped; start it again to go on")
        logger.info("ended; what is not acknowledged will be shipped at the next start")

    async def _work(self) -> None:
        positions = await asyncio.to_thread(self._cache.load)
        if self._patience is not None:
            await self._errand.connection.once(self._patience)
        while True:
            crew = await self._muster(positions)
            try:
                await self._ship(crew)
            except OwnershipLost as error:
                # in doubt, forget what was gathered and ask the stream; that's fine, positions only grow
                logger.warning("%s; claiming the subject again", error)
                positions = crew.positions
                continue
            return

    async def _muster(self, cached: Positions) -> Crew:
        try:
            async with asyncio.timeout(self._patience):
                return await muster(self._errand, cached)
        except TimeoutError:
            reason = self._errand.waiting.reason or "the broker did not answer"
            raise BrokerAway(f"gave up after {self._patience:g} s: {reason}") from None

    async def _ship(self, crew: Crew) -> None:
        settings = self._errand.settings
        pace = Pace(
            settings.round_size,
            settings.compression,
            settings.once,
            self._patience,
            rules=Rules(
                tuple(map(Expression, settings.include_lines)),
                tuple(map(Expression, settings.exclude_lines)),
            ),
        )
        follower = await follower_for(self._errand, crew)
        self._meter.begin()
        shipping = Shipping(
            follower, crew.publish, crew.positions, pace, self._stopping, self._meter
        )
        self._shipping = shipping
        try:
            await self._run_and_keep(shipping)
            if self._stopping.is_set():
                self._end_early()
            elif settings.once:
                shipping.conclude()
        finally:
            self._shipping = None
            await follower.close()

    async def _run_and_keep(self, shipping: Shipping) -> None:
        owner = True
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(self._keeper.run(shipping))
                await shipping.run(group)
                keeping.cancel()
        except BaseExceptionGroup as errors:
            first = leading(errors)
            owner = not isinstance(first, FencedError | OwnershipLost)
            raise first from None
        finally:
            if owner:
                await self._keeper.save(shipping.positions)
