"""A disk that somebody else fills: told, survived, and healed as soon as there is space again."""

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection
from broker.inspect.ask import node_reports
from tests.broker.conftest import Broker, Mounted, StartBroker

pytestmark = pytest.mark.nats

SIZE = 40 * 1024 * 1024
LINE = b"x" * 100_000


class OnSmallDisk:
    """A broker whose store is alone on a disk of its own, in mounts of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        root = Path(f"/proc/{broker.popen.pid}/root")
        self.disk = root / broker.store.relative_to("/")

    def url(self) -> str:
        return str(json.loads((self.disk / "broker.json").read_text("utf-8"))["server"])

    def fill(self) -> None:
        free = shutil.disk_usage(self.disk).free
        with (self.disk / "somebody-elses").open("wb") as file:
            file.write(bytes(free - 3 * 1024 * 1024))

    def clear(self) -> None:
        (self.disk / "somebody-elses").unlink()


@pytest.fixture
def on_small_disk(start_broker: StartBroker, mounted: Mounted, tmp_path: Path) -> OnSmallDisk:
    store = tmp_path / "disk"
    store.mkdir()
    within = mounted(f"mount -t tmpfs -o size={SIZE} tmpfs '{store}'")
    return OnSmallDisk(start_broker(store=store, within=within))


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            if await holds():
                return
        except (ConnectionLost, Rejected, OSError, ValueError):
            pass
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


async def store_until_silence(connection: Connection) -> int:
    stored = 0
    while True:
        try:
            await connection.ask("logs.p0.web01", LINE, patience=5)
        except (ConnectionLost, Rejected):
            return stored
        stored += 1


async def report_of(connection: Connection) -> Any:
    found = await node_reports(connection, 1)
    if not found:
        raise ConnectionLost("nobody answers")
    return found[0]


async def test_a_full_disk_is_told_and_healed_and_nothing_acknowledged_is_lost(
    on_small_disk: OnSmallDisk,
) -> None:
    async def is_there() -> bool:
        return bool(on_small_disk.url())

    await until("it is ready", is_there)
    connection = Connection([on_small_disk.url()], "test")
    on_small_disk.fill()
    stored = await store_until_silence(connection)

    async def is_frozen() -> bool:
        return "no space left" in str((await report_of(connection)).frozen)

    await until("the report says so", is_frozen)
    before = (await report_of(connection)).nats_server_pid
    on_small_disk.clear()

    async def is_healed() -> bool:
        report = await report_of(connection)
        return report.nats_server_pid != before and report.frozen is None

    await until("it is started again", is_healed)
    await connection.ask("logs.p0.web01", b"after")
    info = await connection.api("STREAM.INFO.LOGS")
    await connection.close()

    assert stored > 10
    assert info["state"]["messages"] >= stored + 1
    broker = on_small_disk.broker
    assert broker.said.count("nats-server stores nothing more") == 1
    assert broker.said.count("there is space again") == 1
    assert "does not stop" not in broker.said
    assert broker.popen.poll() is None
