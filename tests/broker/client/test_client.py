"""Headers are read as nats-py reads them, whatever a publisher wrote; and reading goes on where nats-py's would end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from broker.client.connection import Connection, ConnectionLost
from tests.conftest import Server


def _is_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return all((one / "stat").read_text().rpartition(")")[2].split()[0] == "T" for one in threads)


@pytest.mark.nats
async def test_a_flush_that_was_given_up_ends_no_reading(own_server: Server) -> None:
    connection = Connection([own_server.url], "tests")
    client = await connection.once()

    os.kill(own_server.process.pid, signal.SIGSTOP)
    # it may answer until all of its threads have heard of it
    while not _is_stopped(own_server.process.pid):  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)
    with pytest.raises(ConnectionLost, match="no answer"):
        await connection.guard(client.flush(60), 0.2)
    os.kill(own_server.process.pid, signal.SIGCONT)

    await connection.guard(client.flush(60), 30)
    assert "memory" in await connection.api("INFO")
    assert await connection.client() is client
    await connection.close()
