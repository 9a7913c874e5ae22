"""A whole look at the broker, taken again while the servers of a cluster agree on a leader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection

__all__ = ["ELECTION", "until_answered"]

Found = TypeVar("Found")

_AGAIN = 0.5  # seconds

ELECTION = 20.0
"""Seconds in which a cluster that lost a leader has another one: four to nine, and more where its machines are busy."""


async def until_answered(
    connection: Connection, ask: Callable[[Connection], Awaitable[Found]], patience: float
) -> Found:
    """Return what `ask` finds, which changes nothing; it is begun again for `patience` seconds while nobody answers.

    That nobody listens is waited out at a server of a cluster only: a server of its own has no leader to elect. Raises what
    `ask` raised last, or `BrokerAway`.
    """
    clock = asyncio.get_running_loop().time
    give_up = clock() + patience
    while True:
        client = await connection.once(max(0.0, give_up - clock()))
        try:
            return await ask(connection)
        except ConnectionLost:
            if clock() >= give_up:
                raise
        except Rejected as error:
            may_pass = error.is_leaderless and (client.is_clustered or not error.is_nobody)
            if clock() >= give_up or not may_pass:
                raise
        await asyncio.sleep(_AGAIN)
