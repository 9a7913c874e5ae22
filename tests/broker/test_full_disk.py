"""A disk that another program fills: logged, survived, and healed when there is space again."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.inspect.servers import collect_reports
from broker.report import NodeReport
from nats_logship.app.exits import Exit
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from tests.broker.cluster import insist
from tests.broker.conftest import Broker, Call, Mounted, StartBroker

pytestmark = pytest.mark.nats

SIZE = 40 * 1024 * 1024
LINE = b"x" * 100_000


async def store_until_silence(connection: Connection) -> int:
    stored = 0
    while True:
        try:
            await connection.ask("logs.p0.web01", LINE, patience=5)
        except (ConnectionLost, Rejected):
            return stored
        stored += 1


async def report_when(url: str, holds: Callable[[NodeReport], bool]) -> NodeReport:
    """Return the first report of the broker of which that holds."""

    async def ask(connection: Connection) -> NodeReport:
        found = await collect_reports(connection, 1)
        if not found or not holds(found[0]):
            raise ConnectionLost("not yet")
        return found[0]

    return await insist([url], ask, 90)


async def test_a_full_disk_loses_no_acknowledged_line_and_is_healed(
    start_broker: StartBroker, mounted: Mounted, tmp_path: Path
) -> None:
    store = tmp_path / "disk"
    store.mkdir()
    broker = start_broker(
        store=store, within=mounted(f"mount -t tmpfs -o size={SIZE} tmpfs '{store}'")
    )
    # mounts of its own, which are seen through its process
    broker.store = disk = Path(f"/proc/{broker.pid}/root") / store.relative_to("/")
    url = (await asyncio.to_thread(broker.ready))["server"]
    connection = Connection([url], "test")

    somebody_elses = disk / "somebody-elses"
    somebody_elses.write_bytes(bytes(shutil.disk_usage(disk).free - 3 * 1024 * 1024))
    stored = await store_until_silence(connection)
    full = await report_when(url, lambda one: "no space left" in str(one.frozen))
    somebody_elses.unlink()
    await report_when(
        url, lambda one: (one.frozen, one.nats_server_pid == full.nats_server_pid) == (None, False)
    )
    await connection.ask("logs.p0.web01", b"after")
    info = await connection.api("STREAM.INFO.LOGS")
    await connection.close()

    assert stored > 10
    assert info["state"]["messages"] >= stored + 1
    assert broker.read_log().count("nats-server stores nothing more") == 1
    assert broker.read_log().count("there is space again") == 1
    assert "does not stop" not in broker.read_log()
    assert broker.is_running()


def test_a_disk_below_the_limits_of_streams_ends_the_broker_until_it_has_space(
    start_broker: StartBroker, mounted: Mounted, tmp_path: Path
) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    first = start_broker("--max-bytes=30MB", store=copy)
    first.ready()
    assert first.stop() == Exit.DONE

    def start_with(size: int) -> Broker:
        mount = f"mount -t tmpfs -o size={size} tmpfs '{disk}' && cp -a '{copy}/.' '{disk}'"
        broker = start_broker(store=disk, within=mounted(mount))
        broker.store = Path(f"/proc/{broker.pid}/root") / disk.relative_to("/")
        return broker

    failed = start_with(SIZE // 5)

    assert failed.wait(60) == Exit.FAILED, failed.read_log()  # systemd starts it again
    assert "free space there or enlarge it" in failed.read_log()
    assert start_with(SIZE).ready()


def test_a_limit_above_the_size_of_the_disk_is_a_configuration_error(call: Call) -> None:
    refused = call("apply", "--yes", "--max-bytes", "1PiB")

    assert (refused.returncode, refused.stderr.count("\n")) == (Exit.CONFIGURATION, 1)
    assert "insufficient storage resources available; see" in refused.stderr
