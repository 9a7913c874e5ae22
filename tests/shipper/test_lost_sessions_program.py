"""The real program loses its session, and with it nothing: acknowledgements are lost, others write."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.wire.subjects import Subject
from tests.shipper.logs import Ship

pytestmark = pytest.mark.nats

Stream = Callable[..., Awaitable[list[Any]]]


def lines_of(messages: list[Any]) -> bytes:
    return b"".join(message.lines for message in messages)


async def test_of_a_deleted_file_each_line_arrives_once_although_acknowledgements_are_lost(
    line: Any, stream: Stream, ship: Ship, tmp_path: Path
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    shipper = ship(line.url, "--file", log)
    wanted = b"one\n"

    async def arrived() -> None:
        async with asyncio.timeout(60):
            while len(lines_of(await stream())) < len(wanted):  # noqa: ASYNC110 - the stream sets no event
                await asyncio.sleep(0.02)

    await arrived()
    with log.open("ab", buffering=0) as writer:
        log.unlink()
        for number in range(10):
            line.cut_after = b'"seq"'
            for part in range(50):
                writer.write(text := b"%d.%d\n" % (number, part))
                wanted += text
                await asyncio.sleep(0.002)
            await arrived()

    assert line.seen == 10
    assert lines_of(await stream()) == wanted
    assert await asyncio.to_thread(shipper.stop, 12) == 0


async def test_a_client_that_writes_without_a_pause_does_not_keep_the_lines_out(
    connection: Connection, logs_url: str, stream: Stream, ship: Ship, tmp_path: Path
) -> None:
    log, subject = tmp_path / "a.log", str(Subject.for_host("web01", 2))
    log.touch()

    async def flood() -> None:
        client = await connection.client()
        while True:
            await client.publish(subject, b"not ours\n")
            await asyncio.sleep(0.01)

    shipper, flooding = ship(logs_url, "--file", log), asyncio.create_task(flood())
    got, read = b"", 0
    with log.open("ab", buffering=0) as file:
        for number in range(8):
            file.write(b"%d\n" % number)
            async with asyncio.timeout(40):
                while not got.endswith(b"%d\n" % number):
                    await asyncio.sleep(0.02)
                    messages = await stream(read + 1)
                    got += lines_of([one for one in messages if one.origin])
                    read = max([read, *(one.sequence for one in messages)])
    flooding.cancel()

    assert got == b"".join(b"%d\n" % number for number in range(8))
    assert "another client (no agent) wrote to" in shipper.said()
    assert await asyncio.to_thread(shipper.stop, 12) == 0
