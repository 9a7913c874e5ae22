"""Waits for the broker: repeats requests at growing intervals, and logs the reason once."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.credentials import read_credentials
from nats_logship.client.error_codes import ErrorCode
from shipper.settings import ShipperSettings

_CAUSES = ("lost", "busy", "full", "missing", "refused")
"""Why a request is repeated, as the metrics count it."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_SHORT_PAUSE, _ELECTION = 0.5, 20.0  # seconds: pauses are short while a leader may be elected
_QUIET = {"lost": 0.0, "missing": 10.0, "busy": 5.0}
"""Seconds before a cause is logged: an ordinary restart and a burst of messages are over sooner."""
_FULL = {
    ErrorCode.STREAM_STORE_FAILED,
    ErrorCode.INSUFFICIENT_RESOURCES,
    ErrorCode.ACCOUNT_RESOURCES_EXCEEDED,
    ErrorCode.STORAGE_RESOURCES_EXCEEDED,
}
Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)


def explain(error: ConnectionLost | Rejected, denial: str = "") -> tuple[str, str]:
    """Return one of the causes, and a sentence for the log; `denial` is why rights may lack."""
    if isinstance(error, ConnectionLost):
        return "lost", f"the broker did not answer: {error}"
    if isinstance(error, Denied) and denial:
        return "refused", denial
    if error.is_busy:
        return "busy", f"too many messages wait to be stored ({error}); trying again"
    if error.error in _FULL:
        return "full", f"the broker is full ({error}); continues when it has space"
    if error.is_leaderless:
        return "missing", (
            "the stream or its buckets are missing or have no leader yet, or the stream lacks this "
            "host's partition; run `logbroker apply`"
        )
    return "refused", f"the broker refuses: {error}"


def connection_for(settings: ShipperSettings, host: str) -> Connection:
    """Return the connection of a host's shipper; raises `ConfigurationError` for credentials."""
    read_credentials(settings.access)
    return Connection(settings.server, f"logshipper {host}", settings.access)


class Waiting:
    """Repeats requests; `reason` is why it waits now, if it does; `retries` counts by cause."""

    def __init__(self, denial: str = "") -> None:
        """Wait for nothing yet; `denial` is that of `explain`."""
        self.reason = ""
        self.retries = Counter(dict.fromkeys(_CAUSES, 0))
        self._denial = denial

    async def retry_until_answered(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the broker's answer; ask again, however long, if it refuses or does not answer.

        Pauses grow up to 5 s, but are short while a leader may be elected or messages are queued.
        """
        clock, since, pause = asyncio.get_running_loop().time, None, _FIRST_PAUSE
        while True:
            try:
                answer = await ask()
            except (ConnectionLost, Rejected) as error:
                cause, reason = explain(error, self._denial)
            else:
                if self.reason:
                    logger.info("resumed")
                self.reason = ""
                return answer
            self.retries[cause] += 1
            waited = 0.0 if since is None else clock() - since
            since = clock() - waited
            if waited > _QUIET.get(cause, -1.0):
                if reason != self.reason:
                    logger.warning("waiting: %s", reason)
                self.reason = reason
            is_short = cause == "busy" or (cause in {"lost", "missing"} and waited < _ELECTION)
            most = min(pause, _SHORT_PAUSE) if is_short else pause
            await asyncio.sleep(most * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE)
