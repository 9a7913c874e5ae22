"""A disk that somebody else fills: told, survived, and healed as soon as there is space again."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.answer import ConnectionLost, Rejected
from broker.client.connection import Connection
from broker.inspect.ask import node_reports
from tests.broker.conftest import LOGBROKER, Mounted

pytestmark = pytest.mark.nats

SIZE = 40 * 1024 * 1024
LINE = b"x" * 100_000


@pytest.fixture
def small_disk(tmp_path: Path, mounted: Mounted) -> tuple[str, ...]:
    folder = tmp_path / "disk"
    folder.mkdir()
    return mounted(f"mount -t tmpfs -o size={SIZE} tmpfs '{folder}'")


@pytest.fixture
def broker(small_disk: tuple[str, ...], tmp_path: Path) -> Iterator["OnSmallDisk"]:
    broker = OnSmallDisk(small_disk, tmp_path)
    yield broker
    broker.popen.kill()
    broker.popen.wait()


class OnSmallDisk:
    """A broker whose store is alone on a disk of its own."""

    def __init__(self, within: tuple[str, ...], folder: Path) -> None:
        self.log = folder / "log"
        run = (*LOGBROKER, "run", "--store-dir", str(folder / "disk"))
        with self.log.open("wb") as sink:
            self.popen = subprocess.Popen(
                # whoever says how much the store may take gets no limit by the disk
                [
                    *within,
                    *run,
                    "--listen",
                    "127.0.0.1:0",
                    "--http",
                    "",
                    "--max-store",
                    "1GB",
                ],
                stderr=sink,
            )
        self.disk = Path(f"/proc/{self.popen.pid}/root") / folder.relative_to("/") / "disk"

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8")

    def url(self) -> str:
        return str(json.loads((self.disk / "broker.json").read_text("utf-8"))["server"])

    def fill(self) -> None:
        free = shutil.disk_usage(self.disk).free
        with (self.disk / "somebody-elses").open("wb") as file:
            file.write(bytes(free - 3 * 1024 * 1024))

    def clear(self) -> None:
        (self.disk / "somebody-elses").unlink()


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
    broker: OnSmallDisk,
) -> None:
    async def is_there() -> bool:
        return bool(broker.url())

    await until(broker.said, is_there)
    connection = Connection([broker.url()], "test")
    broker.fill()
    stored = await store_until_silence(connection)

    async def is_frozen() -> bool:
        return "no space left" in str((await report_of(connection)).frozen)

    await until("the report says so", is_frozen)
    before = (await report_of(connection)).nats_server_pid
    broker.clear()

    async def is_healed() -> bool:
        report = await report_of(connection)
        return report.nats_server_pid != before and report.frozen is None

    await until("it is started again", is_healed)
    await connection.ask("logs.p0.web01", b"after")
    info = await connection.api("STREAM.INFO.LOGS")
    await connection.close()

    assert stored > 10
    assert info["state"]["messages"] >= stored + 1
    assert broker.said.count("nats-server stores nothing more") == 1
    assert broker.said.count("there is space again") == 1
    assert "does not stop" not in broker.said
    assert broker.popen.poll() is None
