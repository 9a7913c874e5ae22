"""A flush that is given up: the server's answer to it comes late, and ends nothing."""

import os
import signal

import nats.errors
import pytest

from broker.client.connection import Connection
from tests.conftest import Server

pytestmark = pytest.mark.nats


async def test_a_client_goes_on_behind_a_flush_that_was_given_up(own_server: Server) -> None:
    connection = Connection([own_server.url], "test")
    client = await connection.once()

    os.kill(own_server.process.pid, signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(nats.errors.FlushTimeoutError):
            await client.flush(timeout=1)
    os.kill(own_server.process.pid, signal.SIGCONT)

    await client.flush(timeout=30)
    assert "streams" in await connection.api("INFO")
    assert connection.is_on(client)
    assert not client.lost.done()
    await connection.close()
