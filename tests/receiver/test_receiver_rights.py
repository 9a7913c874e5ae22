"""A receiver that may do nothing but receive its own partition: bell, stays, commits, the word to leave, sign of life."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.processes import Processes, wait_until
from broker.connecting.connection import Connection, Denied
from broker.topology import Topology
from receiver.assignment import Stay
from receiver.following.presence import Life, Presence, life_of
from receiver.outcome import Ending
from tests.conftest import apply_topology
from tests.receiver.following.test_follower import Loop
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats

CONFIGURATION = """
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{store}", sync_interval: always }}
no_auth_user: "admin"
authorization {{ users: [
  {{ user: "admin", password: "admin" }}
  {{ user: "central", password: "central", permissions: {{
    publish: {{ allow: [
      "$JS.API.STREAM.INFO.LOGS", "$JS.API.INFO", "$JS.API.DIRECT.GET.LOGS",
      "$JS.API.CONSUMER.CREATE.LOGS.*.logs.p0.>", "$JS.API.CONSUMER.INFO.LOGS.receiver-p0",
      "$JS.API.CONSUMER.RESET.LOGS.receiver-p0", "$JS.API.CONSUMER.DELETE.LOGS.*",
      "$JS.API.CONSUMER.MSG.NEXT.LOGS.*", "$JS.ACK.LOGS.receiver-p0.>",
      "$JS.API.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.partitions",
      "$JS.API.DIRECT.GET.KV_LOGS_OFFSETS.$KV.LOGS_OFFSETS.p0", "$KV.LOGS_OFFSETS.p0",
      "logship.receiver.*", "logship.leave.*" ] }}
    subscribe: {{ allow: [ "_INBOX.>", "logship.receiver.*", "logship.leave.*" ] }}
    allow_responses: true
  }} }}
] }}
"""


@pytest.fixture
def port(processes: Processes, tmp_path: Path, free_port: Callable[[], int]) -> int:
    port, path = free_port(), tmp_path / "secure.conf"
    path.write_text(CONFIGURATION.format(port=port, store=tmp_path / "secure-store"))
    binary = Path(sys.executable).with_name("nats-server")
    server = processes.start("secure", [binary, "-c", path])
    wait_until("is ready", lambda: "Server is ready" in server.last_words(), 20, [server])
    apply_topology(f"nats://127.0.0.1:{port}", Topology(partitions=2))
    return port


async def test_least_rights_suffice_to_receive_and_to_be_told_to_leave(
    port: int, tmp_path: Path
) -> None:
    anybody = Partition(f"nats://127.0.0.1:{port}", tmp_path)
    central = Partition(f"nats://central:central@127.0.0.1:{port}", tmp_path)
    expected = b""

    async with Loop(central, stay=Stay(60.0, 60.0, 0.01)) as loop:
        for line in (b"1\n", b"2\n"):
            await asyncio.to_thread(anybody.lines, "web01", line)
            expected += line
            await loop.has(expected)
        present = Presence(loop.connection, lambda: b"central")
        await present.begin()
        assert await life_of(loop.connection, present.address) is Life.ALIVE
        loop.stop.set()
        await asyncio.wait_for(asyncio.shield(loop.running), 20)

    assert [report.ended for report in loop.reports] == [Ending.ASKED]
    offset = await asyncio.to_thread(anybody.offset)
    assert (offset.next, offset.released) == (3, True)


async def test_the_same_rights_do_not_reach_another_partition(port: int) -> None:
    connection = Connection([f"nats://central:central@127.0.0.1:{port}"], "test")
    try:
        for subject in ("$KV.LOGS_OFFSETS.p1", "logs.p0.web01", "$JS.API.STREAM.PURGE.LOGS"):
            with pytest.raises(Denied, match="permissions violation"):
                await connection.ask(subject, b"{}", patience=1)
    finally:
        await connection.close()
