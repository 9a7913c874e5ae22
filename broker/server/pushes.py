"""Removes consumers that would push lines to where commands and offsets go.

Hosts and receivers make none that push (server/consumer_requests.py). Other sites must be able to, for their copies,
and rights name the consumers that a credential may make, yet not where those push.
nats-server (2.15.1) has one begin at once where somebody listens to that very subject, else at its next start.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from broker.client.connection import Connection, ConnectionLost, Message, Rejected
from broker.provision.apply import consumers_of
from broker.server.context import ServerContext
from broker.wire.streams import STREAM

__all__ = ["Pushes", "is_misused", "refuse_pushes"]

_MADE = "$JS.EVENT.ADVISORY.CONSUMER.CREATED"
_TAKEN_AT_ITS_WORD = re.compile(r"(\$KV|\$SYS|\$JS\.ACK|\$JS\.([^.]+\.)?API|logs|logship)\..+")
_AGAIN = 0.5  # seconds until it looks again after a connection was lost
_LOOK = 600.0  # seconds between looks at all of them, should news of one have been lost

logger = logging.getLogger(__name__)


async def refuse_pushes(context: ServerContext) -> None:
    """Keep the streams of a broker that is ready from being pushed to where lines act as what they say, until cancelled."""
    await Pushes(context.connection, context.resolved.topology.names).run()


def is_misused(config: Mapping[str, Any]) -> bool:
    """Whether a consumer pushes to where lines act as what they say; those of admins and other sites may push elsewhere."""
    return _TAKEN_AT_ITS_WORD.fullmatch(config.get("deliver_subject") or "") is not None


class Pushes:
    """The watch over the consumers of some streams."""

    def __init__(self, connection: Connection, streams: Sequence[str] = (STREAM,)) -> None:
        """Look at none yet."""
        self._connection = connection
        self._streams = streams

    async def run(self) -> None:
        """Watch until cancelled; a connection that is lost is made again."""
        while True:
            with suppress(ConnectionLost, Rejected):
                await self._watch()
            await asyncio.sleep(_AGAIN)

    async def _watch(self) -> None:
        """Look at all consumers now and then, and at each that is made, while the client lives."""
        made: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        async def hear(message: Message) -> None:
            stream, name = message.subject.rsplit(".", 2)[1:]
            if stream in self._streams:
                made.put_nowait((stream, name))

        client = await self._connection.client()
        subscription = await self._connection.subscribe(f"{_MADE}.*.*", hear)
        try:
            while not client.lost.done():
                for stream in self._streams:
                    for info in await consumers_of(self._connection, stream):
                        await self._judge(stream, info)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK):
                        await self._connection.guard(self._follow(made), 2 * _LOOK)
        finally:
            with suppress(ConnectionLost):
                await self._connection.guard(subscription.unsubscribe(), 1)

    async def _follow(self, made: "asyncio.Queue[tuple[str, str]]") -> None:
        while True:
            stream, name = await made.get()
            with suppress(Rejected):  # that's fine: it is gone already
                info = await self._connection.api(f"CONSUMER.INFO.{stream}.{name}")
                await self._judge(stream, info)

    async def _judge(self, stream: str, info: Mapping[str, Any]) -> None:
        name, config = info["name"], info["config"]
        if not is_misused(config):
            return
        with suppress(Rejected):
            await self._connection.api(f"CONSUMER.DELETE.{stream}.{name}")
        logger.warning(
            "removed consumer %s, which would push lines to %r: whoever made it tried to reach what it has no right to",
            name,
            config["deliver_subject"],
        )
