"""What is sent is whole when a flush is over, and waits where nobody reads."""

import asyncio
import os
import socket

import pytest

from broker.client.answer import ConnectionLost
from broker.client.connection import Connection

BLOCK = os.urandom(256 * 1024)


async def test_a_flush_is_over_when_all_before_it_has_been_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection([f"nats://127.0.0.1:{server.getsockname()[1]}"], "test")
        greeting = asyncio.create_task(asyncio.to_thread(greet, server))
        client = await connection.once(5)
        line = await greeting

        answering = asyncio.create_task(asyncio.to_thread(answer_ping, line))
        await connection.publish("elsewhere", b"a line")
        await client.flush()

        assert b"a line" in await answering
        line.close()
        await connection.close()


async def test_a_header_cannot_break_out_of_its_line(logs_url: str) -> None:
    connection = Connection([logs_url], "test")
    await connection.once()

    with pytest.raises(ValueError, match="line break"):
        await connection.publish("elsewhere", BLOCK, headers={"A": "b\r\nC: d"})

    await connection.close()


async def test_a_line_that_nobody_reads_holds_back_the_sender_and_not_its_memory() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        connection = Connection([f"nats://127.0.0.1:{port}"], "test")
        greeting = asyncio.create_task(asyncio.to_thread(greet, deaf))
        client = await connection.once(5)
        line = await greeting

        async def publish() -> None:
            for _ in range(1000):
                await connection.publish("elsewhere", BLOCK, headers={"A": "b"})

        with pytest.raises(ConnectionLost):
            await connection.guard(publish(), 0.5)

        # what fits into the two ends' sockets, and not a byte of the rest
        assert client.stats["out_bytes"] < 100 * len(BLOCK)
        line.close()
        await connection.close()


def greet(deaf: socket.socket) -> socket.socket:
    line, _ = deaf.accept()
    line.sendall(b'INFO {"server_id":"x","max_payload":8388608,"headers":true}\r\n')
    answer_ping(line)
    return line


def answer_ping(line: socket.socket) -> bytes:
    """Return what has come before it."""
    heard = b""
    while b"PING" not in heard:
        heard += line.recv(4096)
    line.sendall(b"PONG\r\n")
    return heard.partition(b"PING")[0]
