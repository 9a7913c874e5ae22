"""The connection that tasks of a worker share: kept, closed when nobody uses it, and there again when somebody does."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bench.processes import wait_until
from broker.client.access import Access
from broker.client.connection import Connection
from receiver.consume import background
from receiver.source.lease import connected, let_go

pytestmark = pytest.mark.nats

Call = Callable[..., dict[str, Any]]


def ask(connection: Connection) -> str:
    async def connect() -> str:
        await connection.once()
        return str((await connection.api("STREAM.INFO.LOGS"))["config"]["name"])

    return background.wait(connect(), 20)


def is_open(connection: Connection) -> bool:
    return connection._client is not None and connection._client.is_connected


def test_a_connection_is_kept_closed_when_idle_and_made_anew(logs_url: str) -> None:
    with connected((logs_url,), Access(), idle=0.2) as first:
        assert ask(first) == "LOGS"
        with connected((logs_url,), Access(), idle=0.2) as second:
            assert second is first
        assert is_open(first)

    wait_until("closed", lambda: not is_open(first), 60, [])

    with connected((logs_url,), Access(), idle=0.2) as third:
        assert ask(third) == "LOGS"
    wait_until("closed again", lambda: not is_open(third), 60, [])


def test_a_connection_in_use_is_never_closed_under_its_user(logs_url: str) -> None:
    with connected((logs_url,), Access(), idle=0.05) as user:
        ask(user)
        with connected((logs_url,), Access(), idle=0.05):
            pass
        for _ in range(20):
            background.wait(_nap(), 5)
            assert is_open(user)
    let_go((logs_url,), Access())
    assert not is_open(user)


async def _nap() -> None:
    await asyncio.sleep(0.02)
