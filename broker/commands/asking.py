"""How a command asks a broker: one connection, and one line for whatever goes wrong with it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.app.exits import OperatorError
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.patience import ELECTION, until_answered
from broker.settings import BrokerSettings

__all__ = ["asking", "looking"]

Found = TypeVar("Found")
_NO_STREAM = 10059


def asking(
    settings: BrokerSettings, command: str, ask: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Connect, return what `ask` finds, and hang up; raises `OperatorError` for a broker that is away or not set up."""
    return asyncio.run(_asked(settings, command, ask))


def looking(
    settings: BrokerSettings, command: str, look: Callable[[Connection], Awaitable[Found]]
) -> Found:
    """Do the same with what changes nothing: it is begun again while a cluster has no leader."""
    return asking(settings, command, lambda c: until_answered(c, look, ELECTION))


async def _asked(
    settings: BrokerSettings, command: str, ask: Callable[[Connection], Awaitable[Found]]
) -> Found:
    connection = Connection(settings.server, f"logbroker {command}", access=settings.access)
    try:
        await connection.once()
        return await ask(connection)
    except Rejected as error:
        raise OperatorError(_refusal(connection.servers, error)) from None
    except ConnectionLost as error:
        raise OperatorError(
            f"the broker at {connection.servers} does not answer: {error}"
        ) from None
    finally:
        await connection.close()


def _refusal(servers: str, error: Rejected) -> str:
    if error.error == _NO_STREAM:
        return f"no stream LOGS at {servers}: {error.description}; set it up with `logbroker apply`"
    return f"the broker at {servers} refuses: {error.description}"
