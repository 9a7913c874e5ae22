"""The end of a client, and of calls that nobody waits for any more: brought about in silence, and put into words."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import nats.errors

from broker.client.answer import ConnectionLost
from broker.client.client import BrokerClient

__all__ = ["close_client", "last_words", "retrieve", "translated"]


def last_words(client: BrokerClient) -> str:
    """Say why a client was lost."""
    words = client.last_error
    return f"connection lost: {words}" if words else "connection lost"


@contextmanager
def translated() -> Iterator[None]:
    """Raise `ConnectionLost` for what the client's library raises of its line."""
    try:
        yield
    except (nats.errors.Error, OSError) as error:
        raise ConnectionLost(str(error) or type(error).__name__) from error


def retrieve(work: "asyncio.Future[Any]") -> None:
    """Look at how it ended: asyncio complains of an error that nobody looked at, also where nobody waits any more."""
    if not work.cancelled():
        work.exception()


async def close_client(client: BrokerClient) -> None:
    """Have a client send what is in hand and end; one whose line is dead is no error."""
    with suppress(nats.errors.Error, OSError, TimeoutError):
        await client.end()
