"""Headers are read as nats-py reads them, whatever a publisher wrote; and reading goes on where nats-py's would end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.aio.client import Client

from broker.client.client import BrokerClient
from broker.client.connection import Connection, ConnectionLost
from tests.conftest import Server

PIECES = st.sampled_from(
    [
        b"Log-Spans",
        b"A",
        b":",
        b": ",
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b"\t",
        "ü".encode(),
        b"\xff",
        b"",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=5), max_size=12).map(b"".join))
@example(b"A: b\r\nA:c\r\nB b: c\r\n: d\r\nno colon\r\nC:\r\n\r\n")
def test_headers_are_those_that_the_library_would_find(raw: bytes) -> None:
    assert BrokerClient._parse_header_lines(raw) == Client._parse_header_lines(raw)


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
