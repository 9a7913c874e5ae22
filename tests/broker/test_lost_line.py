"""A line that breaks while much is waiting to be sent: whoever waits hears of it at once, and nothing else is said."""

import asyncio
import gc
import logging
import socket
import struct

import pytest

from broker.client.answer import ConnectionLost
from broker.client.connection import Connection

_HELLO = b'INFO {"server_id":"x","version":"2.15.1","max_payload":1000000,"headers":true}\r\n'
_RESET = struct.pack(
    "ii", 1, 0
)  # linger, for no time: what is unread is thrown away, and the other end told


async def _listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_HELLO)
    while not (line := await reader.readline()).startswith(b"PUB"):
        if line.startswith(b"PING"):
            writer.write(b"PONG\r\n")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _publish(connection: Connection) -> None:
    while True:
        for _ in range(100):
            await connection.publish("a", b"x" * 8000)
        await asyncio.sleep(0)  # nats-py takes what it is given without ever waiting


async def test_the_end_of_a_line_is_heard_of_at_once_and_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with await asyncio.start_server(_listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection([f"nats://127.0.0.1:{port}"], "test")
        for _ in range(10):
            client = await connection.once()
            waiting = connection.guard(client.request("silence", timeout=100), patience=90)
            publishing = (_publish(connection) for _ in range(4))

            async with asyncio.timeout(90):
                ends = await asyncio.gather(waiting, *publishing, return_exceptions=True)

            assert [type(end) for end in ends] == [ConnectionLost] * 5
        await connection.close()
    gc.collect()
    await asyncio.sleep(0)

    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
