"""Spreads the leaders of a cluster's streams over its servers.

nats-server leaves a stream's leader where the last election made it: behind a rolling restart all may be at one server,
which then does the work of all. Each broker looks at what its own server leads, and hands one stream over at a time.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from broker.server.context import ServerContext
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection

_LOOK_EVERY = 20.0  # seconds; at least so long between two elections that a broker asks for
logger = logging.getLogger(__name__)


def surplus(infos: Sequence[Mapping[str, Any]], own: str) -> tuple[str, str] | None:
    """Return a stream that server `own` leads and the server that should: one that has all of it, and leads two less.

    `infos` are the answers to STREAM.INFO. None where leaders are spread.
    """
    leads = Counter(info["cluster"].get("leader", "") for info in infos)
    for info in infos:
        if info["cluster"].get("leader") == own:
            level = [
                one["name"]
                for one in info["cluster"].get("replicas") or ()
                if one["current"] and not one.get("offline") and not one.get("lag")
            ]
            target = min(level, key=lambda name: leads[name], default=own)
            if leads[own] - leads[target] >= 2:
                return info["config"]["name"], target
    return None


async def spread_leaders(context: ServerContext) -> None:
    """Keep the leaders of the cluster's streams spread, until cancelled; nothing to do for one server or one stream."""
    names = context.conf.topology.names
    if context.settings.cluster and len(names) > 1:
        await keep_spread(context.connection, context.settings.name, names, _LOOK_EVERY)


async def keep_spread(
    connection: Connection, own: str, streams: Sequence[str], every: float
) -> None:
    """Look about every so many seconds, and hand over a stream that server `own` leads too many with."""
    while True:
        await asyncio.sleep(every * random.uniform(0.5, 1.5))  # two that look at once may overdo it
        try:
            infos = [await connection.api(f"STREAM.INFO.{stream}") for stream in streams]
            if move := surplus(infos, own):
                logger.info("handing stream %s over to server %s, which leads fewer", *move)
                wish = {"placement": {"preferred": move[1]}}
                await connection.api(f"STREAM.LEADER.STEPDOWN.{move[0]}", wish)
        except (ConnectionLost, Rejected) as error:
            logger.debug("leaders stay where they are: %s", error)
