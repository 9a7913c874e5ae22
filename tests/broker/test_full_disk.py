"""A disk that another program fills: logged, survived, and healed when there is space again."""

import asyncio
import base64
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
from tests.broker.conftest import Call, Mounted, StartBroker, ask
from tests.support.ports import free_port
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

SIZE = 40 * 1024 * 1024
LINE = b"x" * 100_000


async def store_until_silence(connection: Connection) -> int:
    stored = 0
    while True:
        try:
            await connection.ask("logs.p0.web01", LINE, patience=20)
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


async def read_first(connection: Connection) -> tuple[bytes, int]:
    """Return the first message, and the limit of the stream in bytes."""
    found = await connection.api("STREAM.MSG.GET.LOGS", {"seq": 1})
    info = await connection.api("STREAM.INFO.LOGS")
    return base64.b64decode(found["message"]["data"]), info["config"]["max_bytes"]


@pytest.mark.parametrize(
    ("size", "fill", "limits"),
    [
        (SIZE // 2, ":", range(10_000_000, 19_000_000)),
        (SIZE, "! head -c 99M /dev/zero > '{}/others'", range(30_000_000, 30_000_001)),
    ],
    ids=["smaller", "full"],
)
def test_a_broker_whose_disk_became_smaller_or_full_serves_what_it_has(
    start_broker: StartBroker,
    mounted: Mounted,
    tmp_path: Path,
    size: int,
    fill: str,
    limits: range,
) -> None:
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    first = start_broker("--max-bytes=30MB", store=copy)
    ask(first.ready()["server"], ("logs.p0.web01", LINE))
    assert first.stop() == Exit.DONE

    listen = f"127.0.0.1:{free_port()}"
    lines = f"mount -t tmpfs -o size={size} tmpfs '{disk}' && cp -a '{copy}/.' '{disk}'"
    within = mounted(f"{lines} && {fill.format(disk)}")
    broker = start_broker(f"--listen={listen}", store=disk, within=within)

    wait_until("is ready", lambda: "ready: " in broker.read_log(), 60, [broker])
    line, limit = asyncio.run(insist([f"nats://{listen}"], read_first))
    assert (line, limit in limits) == (LINE, True), limit
    assert broker.read_log().count("\n") < 5
    assert broker.stop() == Exit.DONE


def test_a_limit_above_the_size_of_the_disk_is_a_configuration_error(call: Call) -> None:
    refused = call("apply", "--yes", "--max-bytes", "1PiB")

    assert (refused.returncode, refused.stderr.count("\n")) == (Exit.CONFIGURATION, 1)
    assert "insufficient storage resources available; see" in refused.stderr
