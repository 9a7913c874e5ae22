"""Waiting for the broker: logs the reason once, logs that it is resumed, and spaces out the attempts."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.answer import ConnectionLost, Denied, Rejected
from broker.client.connection import Connection
from broker.client.credentials import verify
from shipper.settings import ShipperSettings

RETRY_CAUSES = ("lost", "full", "missing", "refused")
"""Why something is tried again, for counting: few words that stay, where reasons are sentences."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_SHORT_PAUSE, _ELECTION = 0.5, 20.0  # seconds: no pause is longer while a leader may be elected
_FULL = {10077, 10023, 10002, 10047}
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


def reason_of(error: Rejected, host: str = "", owner: str = "") -> str:
    """Return what a refusal means to the person who reads the log of a host's shipper; `owner` is the host of its credential."""
    if isinstance(error, Denied) and owner not in {"", host}:
        return (
            f"the credential is for host {owner}, but --host is {host}: "
            f"use the credential of {host}, or --host {owner}"
        )
    if error.error in _FULL:
        return f"the broker is full ({error}); goes on when it has room"
    if error.is_leaderless:
        return (
            "the stream or its buckets are not there, or have no leader yet, or the stream does not take this host's "
            "partition; run `logbroker apply`"
        )
    return f"the broker refuses: {error}"


def connection_for(settings: ShipperSettings, host: str) -> Connection:
    """Return the connection of a host's shipper; raises `ConfigurationError` when the means of getting in cannot be used."""
    verify(settings.access)
    return Connection(settings.server, f"logshipper {host}", settings.access)


class Waiting:
    """What this agent waits for, if anything; `reason` is empty while all goes well.

    `since` is when that began, on the loop's clock; `retries` counts what was tried again, by cause.
    """

    def __init__(self, host: str = "", owner: str = "") -> None:
        """Wait for nothing; `host` and `owner` are those of `reason_of`."""
        self.reason = ""
        self.since: float | None = None
        self.retries: Counter[str] = Counter()
        self._pause = _FIRST_PAUSE
        self._host, self._owner = host, owner

    async def until_answered(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return what the broker answers, however long it takes: asks again where it did not answer, or refused."""
        while True:
            try:
                answer = await ask()
            except ConnectionLost as error:
                await self.pause(f"the broker did not answer: {error}")
            except Rejected as error:
                await self.refused(error)
            else:
                self.over()
                return answer

    async def refused(self, error: Rejected) -> None:
        """Say why the broker refused something, and wait, as `pause` does."""
        cause = "missing" if error.is_leaderless else "refused"
        reason = reason_of(error, self._host, self._owner)
        await self.pause(reason, "full" if error.error in _FULL else cause)

    async def pause(self, reason: str, cause: str = "lost") -> None:
        """Say `reason` unless it was the last thing said, and wait; longer each time, at most 5 s.

        That nobody listens is no news the first time: so it is for a moment when a broker reads its accounts again. Where
        a leader may be missing that others are about to elect, no pause is long at first.
        """
        now = asyncio.get_running_loop().time()
        if cause != "missing" or self.since is not None:
            if reason != self.reason:
                logger.warning("waiting: %s", reason)
            self.reason = reason
        if self.since is None:
            self.since = now
        self.retries[cause] += 1
        is_short = cause in {"lost", "missing"} and now - self.since < _ELECTION
        pause = min(self._pause, _SHORT_PAUSE) if is_short else self._pause
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def over(self) -> None:
        """Log that the broker is not waited for any more, if it was."""
        if self.reason:
            logger.info("resumed")
        self.reason, self.since, self._pause = "", None, _FIRST_PAUSE
