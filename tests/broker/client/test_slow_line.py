"""A slow line is not given up because a PONG stands behind what is still on its way."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

import broker.client.client
from broker.client.connection import Connection, Message

_PING_EVERY = 1  # seconds
_BLOCK = os.urandom(256 * 1024)
_SLOW = 60_000  # bytes a second
_BUFFER = 8192


class SlowLine:
    """A line to a broker that lets `_SLOW` bytes a second through each way, by a small buffer."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._door, self._broker = socket.socket(), socket.socket()
        for end in (self._door, self._broker):  # so that bytes wait where they are sent
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        self._broker.connect((parts.hostname, parts.port))
        self._door.bind(("127.0.0.1", 0))
        self._door.listen()
        address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.url = parts._replace(
            netloc="@".join([*parts.netloc.split("@")[:-1], address])
        ).geturl()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._door, self._broker, self._door.accept()[0] as client:
            back = threading.Thread(target=self._pump, args=(self._broker, client))
            back.start()
            self._pump(client, self._broker)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_BUFFER):
                time.sleep(len(data) / _SLOW)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Wait until the client has hung up."""
        self._thread.join()


@pytest.fixture
def slow_line(fresh_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLine]:
    monkeypatch.setattr(broker.client.client, "_PING_EVERY", _PING_EVERY)
    line = SlowLine(fresh_url)
    yield line
    line.close()


@pytest.mark.nats
async def test_a_message_gets_through_that_takes_the_line_longer_than_pings(
    slow_line: SlowLine, fresh_url: str
) -> None:
    near, far = Connection([fresh_url], "near"), Connection([slow_line.url], "far")
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    answers: asyncio.Queue[Message] = asyncio.Queue()
    await near.subscribe("there", arrived.put)
    await far.subscribe("back", answers.put)

    async with asyncio.timeout(60):
        await far.publish("there", _BLOCK, headers={"A": "b"})
        out = (await arrived.get()).data
        await near.publish("back", _BLOCK)
        back = (await answers.get()).data

    assert (out, back) == (_BLOCK, _BLOCK)
    await near.close()
    await far.close()
