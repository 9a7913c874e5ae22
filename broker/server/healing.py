"""Asks nats-server how it is, again and again, and has it started again: where a full disk stopped it, and where it hangs."""

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from broker.app.sizes import format_size
from broker.client.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.server.health import Healing, Health, enough_space, read_health

__all__ = ["Disk", "Watch"]

_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
_LOOK_EVERY = 2.0  # seconds
_PATIENCE = 3.0  # seconds for an answer
_HANGS = 50.0  # seconds without one; a watchdog would end all of the broker after 60
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of a store, by its folder; `reserve` tells how much of it is to stay free, in bytes."""

    folder: Path
    reserve: Callable[[], int]


class Watch:
    """The watch over one life of a server; `health` is what it said last, `answered` when, by the monotonic clock."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        disk: Disk,
        healing: Healing,
        restart: Callable[[], None],
    ) -> None:
        """Ask nothing yet. `restart` is called when that heals."""
        self.health = Health(name)
        self.answered = time.monotonic()
        self.healing = healing
        self._connection = connection
        self._disk = disk
        self._restart = restart

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._look()
            if self.health.frozen:
                self._heal()
            elif time.monotonic() - self.answered > _HANGS:
                self._wake()
            await asyncio.sleep(_LOOK_EVERY)

    async def _look(self) -> None:
        try:
            health = await self._ask()
        except (ConnectionLost, Rejected, TimeoutError) as error:
            logger.debug("nats-server does not tell how it is: %s", error)
            return
        self.answered = time.monotonic()
        if health.frozen and not self.health.frozen:
            logger.error("nats-server stores nothing more, since a write failed: %s", health.frozen)
        self.health = health

    async def _ask(self) -> Health:
        told: asyncio.Future[Health] = asyncio.get_running_loop().create_future()

        def take(message: Arrived) -> None:
            health = read_health(message.data)
            # in a cluster the others answer as well
            if health is not None and health.server == self.health.server and not told.done():
                told.set_result(health)

        async with asyncio.timeout(_PATIENCE):
            await self._connection.client()
        inbox = self._connection.new_inbox()
        subscription = await self._connection.tap(inbox, take)
        try:
            await self._connection.publish(_SUBJECT, reply=inbox)
            return await self._connection.guard(_answer(told), _PATIENCE)
        finally:
            with suppress(ConnectionLost):  # which would take the place of a cancellation
                await self._connection.guard(subscription.unsubscribe(), _PATIENCE)

    def _heal(self) -> None:
        free, now = shutil.disk_usage(self._disk.folder).free, time.monotonic()
        if enough_space(free, self._disk.reserve()) and self.healing.may_begin(now):
            logger.warning(
                "there is space again (%s): restarting nats-server, so that it stores lines again",
                format_size(free),
            )
            self.healing = self.healing.begun(now)
            self._restart()

    def _wake(self) -> None:
        now = time.monotonic()
        if self.healing.may_begin(now):
            logger.error("nats-server has not answered for %g s: starting it again", _HANGS)
            self.healing = self.healing.begun(now)
            self._restart()


async def _answer(told: "asyncio.Future[Health]") -> Health:
    return await told
