"""Large messages go to the socket as they are, and in the order of the calls."""

import asyncio
import os
import socket

import pytest

from broker.client.answer import ConnectionLost
from broker.client.client import DIRECT_BYTES
from broker.client.connection import Connection, Message

BLOCK = os.urandom(256 * 1024)


async def test_large_and_small_messages_arrive_in_the_order_of_the_calls(logs_url: str) -> None:
    connection = Connection([logs_url], "test")
    await connection.once()
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    sizes = [0, 1, DIRECT_BYTES - 1, DIRECT_BYTES, 5, len(BLOCK), 7, len(BLOCK) - 1] * 8

    await connection.subscribe("elsewhere", arrived.put)
    for number, size in enumerate(sizes):
        await connection.publish("elsewhere", BLOCK[:size], headers={"Number": str(number)})

    async with asyncio.timeout(60):
        messages = [await arrived.get() for _ in sizes]
    assert [(m.headers or {})["Number"] for m in messages] == [str(n) for n in range(len(sizes))]
    assert [m.data for m in messages] == [BLOCK[:size] for size in sizes]
    await connection.close()


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
