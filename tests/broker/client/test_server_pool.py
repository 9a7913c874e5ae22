"""Which of several servers is entered: one that has lost sight of the others only where there is no other."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.client.connection import Connection

ADDRESSES = [f"10.0.0.{number}:4222" for number in range(3)]


@asynccontextmanager
async def server(known: int) -> AsyncIterator[str]:
    """Stand for a nats-server that knows so many addresses of its cluster."""
    info = {"server_id": "x", "max_payload": 1000, "headers": True, "proto": 1}
    hello = b"INFO " + json.dumps({**info, "connect_urls": ADDRESSES[:known]}).encode() + b"\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(hello)
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield f"nats://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def entered(*servers: str) -> str:
    connection = Connection(servers, "test")
    address = (await connection.once()).address
    await connection.close()
    return address


@pytest.mark.parametrize("known", [2, 3])
async def test_a_server_that_is_cut_off_is_passed_over(known: int) -> None:
    async with server(1) as alone, server(known) as among:
        found = {await entered(alone, among, "nats://127.0.0.1:1") for _ in range(5)}

    assert found == {among}


async def test_a_server_that_is_cut_off_is_better_than_none() -> None:
    async with server(1) as alone:
        assert await entered(alone, "nats://127.0.0.1:1", "nats://127.0.0.1:2") == alone


async def test_servers_without_a_cluster_are_all_the_same() -> None:
    async with server(0) as one, server(0) as other:
        found = {await entered(one, other, "nats://127.0.0.1:1") for _ in range(30)}

    assert found == {one, other}
