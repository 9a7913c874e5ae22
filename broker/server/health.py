"""Restarts a nats-server that hangs, or that a full disk has stopped.

After a failed write a stream stores nothing more until the server is restarted, even if there is
space again. In a cluster, if the failed write was one of Raft's, the server disables JetStream.
"""

import asyncio
import json
import logging
import re
import shutil
import time

from broker.server.context import ServerContext
from nats_logship.app.units import format_size
from nats_logship.client.answer import ConnectionLost, Rejected

_SUBJECT = "$SYS.REQ.SERVER.PING.HEALTHZ"
_CHECK_EVERY = 2.0  # seconds
_PATIENCE = 3.0  # seconds for an answer
_HANGS = 50.0  # seconds without an answer
_PAUSE = 20.0  # seconds between restarts
_FAILED_WRITE = re.compile(
    r"write error: ?(?P<reason>[^\"]*)|JetStream (not enabled|out of (\w+ )?resources)",
    re.IGNORECASE,
)
_LEAST_SPACE = 8 * 1024**2  # bytes by which files of the server grow
logger = logging.getLogger(__name__)


def find_failed_write(answer: bytes) -> str:
    """Return the failed write in the server's answer about its health; empty for none."""
    found = _FAILED_WRITE.search(answer.decode("utf-8", "replace"))
    return (found["reason"] or found[0]) if found else ""


async def watch_health(context: ServerContext) -> None:
    """Ask nats-server for its health until cancelled, and restart it if that helps."""
    question = json.dumps({"server_name": context.settings.name, "exact_match": True}).encode()
    context.frozen, answered = "", time.monotonic()
    while True:
        try:
            async with asyncio.timeout(2 * _PATIENCE):  # also if it refuses our connection
                answer = await context.connection.request(_SUBJECT, question, patience=_PATIENCE)
            if (frozen := find_failed_write(answer.data)) and not context.frozen:
                logger.error("nats-server stores nothing more after a failed write: %s", frozen)
            context.frozen, answered = frozen, time.monotonic()
        except (ConnectionLost, Rejected, TimeoutError) as error:
            logger.debug("nats-server does not answer about its health: %s", error)
        if context.frozen:
            free = shutil.disk_usage(context.folder).free
            if free >= max(context.reserve // 2, _LEAST_SPACE):
                context.restart(f"there is space again ({format_size(free)})", _PAUSE)
        elif time.monotonic() - answered > _HANGS:
            context.restart(f"no answer for {_HANGS:g} s", _PAUSE)
        await asyncio.sleep(_CHECK_EVERY)
