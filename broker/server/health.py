"""Asks nats-server for its health again and again, and has it restarted: where a full disk has stopped it, and where it hangs.

After a failed write a stream takes nothing more, though there be space again, until the server is restarted. In a cluster,
where the failed write was one of Raft's, the server does without JetStream altogether from then on.
"""

import asyncio
import json
import logging
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.app.units import format_size
from broker.client.connection import Connection, ConnectionLost, RawMessage, Rejected

__all__ = ["HealthWatch", "Restarts", "enough_space", "failed_write", "read_health"]

_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
_LOOK_EVERY = 2.0  # seconds
_PATIENCE = 3.0  # seconds for an answer
_HANGS = 50.0  # seconds without one; a watchdog would end all of the broker after 60
_FAILED_WRITE = re.compile(
    r"write error: ?(?P<reason>.*)|JetStream (not enabled|out of (\w+ )?resources)", re.IGNORECASE
)
_LEAST_SPACE = 8 * 1024**2  # bytes: files of the server grow by as much
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0  # seconds
logger = logging.getLogger(__name__)


def read_health(data: bytes) -> tuple[str, str] | None:
    """Read an answer: the server's name, and the write that failed, empty when none has; None for what is no answer."""
    try:
        answer = json.loads(data)
        server, health = str(answer["server"]["name"]), answer["data"]
        errors = [health.get("error"), *(one.get("error") for one in health.get("errors") or ())]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return server, next(filter(None, (failed_write(str(text or "")) for text in errors)), "")


def failed_write(text: str) -> str:
    """Return the write that failed, by an error of the server's; empty when the error is about something else."""
    found = _FAILED_WRITE.search(text)
    return found["reason"] or text if found else ""


def enough_space(free: int, reserve: int) -> bool:
    """Whether a server may be restarted on a disk with `free` bytes, of which `reserve` should stay free."""
    return free >= max(reserve // 2, _LEAST_SPACE)


@dataclass(slots=True)
class Restarts:
    """How often a server was restarted lately for its health, and when last, in seconds of a clock."""

    times: int = 0
    last: float = 0.0

    def may_begin(self, now: float) -> bool:
        """Whether to try again; each time after a longer pause, as long as that does not help."""
        pause = min(_FIRST_PAUSE * 2 ** min(self.times - 1, 10), _LONGEST_PAUSE)
        return not self.times or now - self.last >= pause

    def begin(self, now: float) -> None:
        """Count another restart."""
        has_helped = now - self.last > 2 * _LONGEST_PAUSE
        self.times, self.last = 1 if has_helped else self.times + 1, now


class HealthWatch:
    """The watch over one nats-server."""

    def __init__(
        self, connection: Connection, name: str, folder: Path, reserve: Callable[[], int]
    ) -> None:
        """Ask nothing yet; `reserve` says how many bytes of the store's disk are to stay free."""
        self.frozen = ""
        """The write that failed, for which nothing more is stored."""
        self.answered = time.monotonic()
        self._connection = connection
        self._name = name
        self._folder = folder
        self._reserve = reserve

    async def run(self, restarts: Restarts, restart: Callable[[], Any]) -> None:
        """Watch until cancelled; `restart` is called when that heals."""
        while True:
            await self._look()
            now = time.monotonic()
            reason = self._reason_to_restart(now)
            if reason and restarts.may_begin(now):
                logger.warning("restarting nats-server: %s", reason)
                restarts.begin(now)
                restart()
            await asyncio.sleep(_LOOK_EVERY)

    def _reason_to_restart(self, now: float) -> str:
        if self.frozen:
            free = shutil.disk_usage(self._folder).free
            is_space = enough_space(free, self._reserve())
            return f"there is space again ({format_size(free)})" if is_space else ""
        return f"no answer for {_HANGS:g} s" if now - self.answered > _HANGS else ""

    async def _look(self) -> None:
        try:
            frozen = await self._ask()
        except (ConnectionLost, Rejected, TimeoutError) as error:
            logger.debug("nats-server does not answer about its health: %s", error)
            return
        self.answered = time.monotonic()
        if frozen and not self.frozen:
            logger.error("nats-server stores nothing more, since a write failed: %s", frozen)
        self.frozen = frozen

    async def _ask(self) -> str:
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def take(message: RawMessage) -> None:
            health = read_health(message.data)
            # in a cluster the others answer as well
            if health is not None and health[0] == self._name and not answered.done():
                answered.set_result(health[1])

        async with asyncio.timeout(_PATIENCE):
            await self._connection.client()
        inbox = self._connection.new_inbox()
        subscription = await self._connection.tap(inbox, take)
        try:
            await self._connection.publish(_SUBJECT, reply=inbox)
            return await self._connection.guard(asyncio.wait_for(answered, _PATIENCE), _PATIENCE)
        finally:
            with suppress(ConnectionLost):  # which would take the place of a cancellation
                await self._connection.guard(subscription.unsubscribe(), _PATIENCE)
