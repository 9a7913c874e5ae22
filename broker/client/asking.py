"""A command's question to the broker: connect, ask, disconnect, and say in one line what kept it from an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from broker.app.exits import OperatorError
from broker.client.access_settings import AccessSettings
from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection, until_answered

Found = TypeVar("Found")

_STREAM_NOT_FOUND = 10059


def ask(
    settings: AccessSettings,
    program: str,
    question: Callable[[Connection], Awaitable[Found]],
    patience: float = 0.0,
) -> Found:
    """Connect as `program`, return what `question` finds, and disconnect.

    What changes nothing may be asked again for `patience` seconds while a cluster has no leader. Raises `OperatorError` for
    a broker that is away, refuses or does not answer.
    """

    async def asked() -> Found:
        connection = Connection(settings.server, program, access=settings.access)
        at = f"the broker at {connection.servers}"
        try:
            await connection.once()
            return await until_answered(connection, question, patience)
        except Rejected as error:
            is_absent = error.error == _STREAM_NOT_FOUND
            hint = "; set it up with `logbroker apply`" if is_absent else ""
            raise OperatorError(f"{at} refuses: {error.description}{hint}") from None
        except ConnectionLost as error:
            raise OperatorError(f"{at} does not answer: {error}") from None
        finally:
            await connection.close()

    return asyncio.run(asked())
