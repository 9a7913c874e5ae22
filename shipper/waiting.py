"""Waiting for the broker: says why once, says when it goes on, and spaces out the attempts."""

import asyncio
import logging
import random

from broker.connection import Rejected

__all__ = ["Waiting", "reason_of"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_FULL = {10077, 10023, 10002, 10047}
_NOT_ATOMIC = {10174}
logger = logging.getLogger(__name__)


class Waiting:
    """What this agent waits for, if anything; `reason` is empty while all goes well."""

    def __init__(self) -> None:
        self.reason = ""
        self._pause = _FIRST_PAUSE

    async def pause(self, reason: str) -> None:
        """Say `reason` unless it was the last thing said, and wait; longer each time, at most 5 s."""
        if reason != self.reason:
            logger.warning("waiting: %s", reason)
        self.reason = reason
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def over(self) -> None:
        """Say that it goes on, if it had stopped."""
        if self.reason:
            logger.info("going on")
        self.reason, self._pause = "", _FIRST_PAUSE


def reason_of(error: Rejected) -> str:
    """Return what a refusal means to the person who reads the log."""
    if error.error in _FULL:
        return f"the broker is full ({error}); goes on when it has room"
    if error.error in _NOT_ATOMIC:
        return f"the stream takes no atomic batches ({error}); run `logbroker apply`"
    if error.error == 0 and error.code == 503:
        return "the stream or its buckets are not there; run `logbroker apply`"
    return f"the broker refuses: {error}"
