"""Listens to what happens at the broker. Nothing of it is kept there: what happens while nobody listens is not told."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from datetime import UTC, datetime

from broker.client.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.looking.event import SUBJECTS, Event, read

__all__ = ["listen"]

_LOOK_EVERY = 5.0  # seconds
_MOST_WAITING = 100_000
logger = logging.getLogger(__name__)


async def listen(connection: Connection) -> AsyncGenerator[Event, None]:
    """Yield events for ever, and say once what cannot be heard; a broker that goes away is waited for."""
    await _say_what_is_not_heard(connection)
    waiting: asyncio.Queue[Arrived] = asyncio.Queue(_MOST_WAITING)
    client: object = None
    while True:
        if (found := await connection.client()) is not client:
            if client is not None:
                logger.warning("the connection was lost: events of the meantime are not told")
            client = found
            await _subscribe(connection, waiting)
        try:
            async with asyncio.timeout(_LOOK_EVERY):
                message = await waiting.get()
        except TimeoutError:
            continue  # has the client been lost meanwhile?
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")  # noqa: TID251 - the shell's clock
        yield read(message.subject, message.data, now)


async def _subscribe(connection: Connection, waiting: "asyncio.Queue[Arrived]") -> None:
    def take(message: Arrived) -> None:
        if not waiting.full():  # whoever reads them takes too long: what is newest goes
            waiting.put_nowait(message)

    try:
        for subject in SUBJECTS:
            await connection.tap(subject, take)
    except ConnectionLost as error:
        logger.debug("subscribing anew: %s", error)


async def _say_what_is_not_heard(connection: Connection) -> None:
    if not await _is_heard(connection.request("$SYS.REQ.SERVER.PING.IDZ", patience=2.0)):
        logger.warning(
            "no events of the server itself (clients, refusals, shutdowns): come as an admin of a logbroker, or as a "
            "user of the system account"
        )
    if not await _is_heard(connection.api("INFO", patience=2.0)):
        logger.warning("no advisories of JetStream: this user's account has none")


async def _is_heard(question: Awaitable[object]) -> bool:
    """Whether nothing speaks against it: a cluster without a leader says nothing, or that it has none just now."""
    try:
        await question
    except Rejected as error:
        return error.is_leaderless and not error.is_nobody
    except ConnectionLost:
        return True
    return True
