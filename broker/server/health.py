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
from pathlib import Path
from typing import Any

from broker.app.units import format_size
from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection

_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
_LOOK_EVERY = 2.0  # seconds
_PATIENCE = 3.0  # seconds for an answer
_HANGS = 50.0  # seconds without one
_PAUSE = 20.0  # seconds between restarts, while these do not help
_FAILED_WRITE = re.compile(
    r"write error: ?(?P<reason>[^\"]*)|JetStream (not enabled|out of (\w+ )?resources)",
    re.IGNORECASE,
)
_LEAST_SPACE = 8 * 1024**2  # bytes: files of the server grow by as much
logger = logging.getLogger(__name__)


def failed_write(answer: bytes) -> str:
    """Return the write that failed, by what the server answers about its health; empty where it is well, or troubled otherwise."""
    found = _FAILED_WRITE.search(answer.decode("utf-8", "replace"))
    return (found["reason"] or found[0]) if found else ""


class HealthWatch:
    """The watch over the nats-server of a folder, through its restarts."""

    def __init__(self, name: str, folder: Path, reserve: Callable[[], int]) -> None:
        """Ask nothing yet; `reserve` says how many bytes of the store's disk are to stay free."""
        self.frozen = ""
        """The write that failed, for which nothing more is stored."""
        self._question = json.dumps({"server_name": name, "exact_match": True}).encode()
        self._folder, self._reserve = folder, reserve
        self._restarted = -_PAUSE

    async def run(self, connection: Connection, restart: Callable[[], Any]) -> None:
        """Watch until cancelled; `restart` is called when that heals."""
        self.frozen, answered = "", time.monotonic()
        while True:
            try:
                async with asyncio.timeout(2 * _PATIENCE):  # also where it does not let us in
                    answer = await connection.request(_SUBJECT, self._question, patience=_PATIENCE)
                if (frozen := failed_write(answer.data)) and not self.frozen:
                    logger.error(
                        "nats-server stores nothing more, since a write failed: %s", frozen
                    )
                self.frozen, answered = frozen, time.monotonic()
            except (ConnectionLost, Rejected, TimeoutError) as error:
                logger.debug("nats-server does not answer about its health: %s", error)
            reason = self._reason_to_restart(time.monotonic() - answered)
            if reason and time.monotonic() - self._restarted >= _PAUSE:
                self._restarted = time.monotonic()
                logger.warning("restarting nats-server: %s", reason)
                restart()
            await asyncio.sleep(_LOOK_EVERY)

    def _reason_to_restart(self, silence: float) -> str:
        if self.frozen:
            free = shutil.disk_usage(self._folder).free
            has_space = free >= max(self._reserve() // 2, _LEAST_SPACE)
            return f"there is space again ({format_size(free)})" if has_space else ""
        return f"no answer for {_HANGS:g} s" if silence > _HANGS else ""
