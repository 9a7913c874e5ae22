import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bench.ports
from bench.processes import Processes
from broker.connecting.access import Access
from broker.connecting.connection import BrokerAway, Connection
from broker.looking.event import Event
from broker.looking.events import listen
from broker.topology import Topology
from tests.broker.conftest import LOGBROKER
from tests.conftest import Server, wait_for_server

pytestmark = pytest.mark.nats

_CONFIGURATION = """
listen: "127.0.0.1:{port}"
server_name: n1
jetstream {{ store_dir: "{store}" }}
system_account: SYS
no_auth_user: anybody
accounts {{
  SYS {{ exports: [ {{ stream: "$SYS.ACCOUNT.>" }}, {{ stream: "$SYS.SERVER.>" }},
                    {{ service: "$SYS.REQ.SERVER.PING.IDZ", response_type: stream }} ] }}
  LOGS {{
    jetstream: enabled
    users: [ {{ user: anybody, password: anybody }} ]
    imports: [ {{ stream: {{ account: SYS, subject: "$SYS.ACCOUNT.>" }} }},
               {{ stream: {{ account: SYS, subject: "$SYS.SERVER.>" }} }},
               {{ service: {{ account: SYS, subject: "$SYS.REQ.SERVER.PING.IDZ" }} }} ]
  }}
}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("events")
    port = bench.ports.free_port()
    path = folder / "nats-server.conf"
    path.write_text(_CONFIGURATION.format(port=port, store=folder / "store"), "utf-8")
    binary = Path(sys.executable).with_name("nats-server")
    with Processes(folder) as processes:
        started = Server(
            f"nats://127.0.0.1:{port}", processes.start("nats-server", [binary, "-c", path])
        )
        wait_for_server(started)
        yield started


async def _until(events: AsyncIterator[Event], fits: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(20):
        async for event in events:
            if fits(event):
                return event
    raise AssertionError("the events ended")


async def test_clients_and_streams_that_come_and_go_are_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    listening, other = Connection([server.url], "listening"), Connection([server.url], "somebody")
    events = listen(listening)
    begun = asyncio.ensure_future(_until(events, lambda event: "somebody" in event.text))
    await asyncio.sleep(0)
    while not begun.done():  # until the subscriptions hold
        await other.once()
        await other.close()
        await asyncio.sleep(0.1)
    await other.once()
    await other.api("STREAM.CREATE.LOGS", Topology().streams()[0])
    made = await _until(events, lambda event: event.kind == "stream_action")
    await other.close()
    gone = await _until(
        events, lambda event: event.kind == "client_disconnect" and "somebody" in event.text
    )
    stranger = Connection([server.url], "stranger", access=Access(user="x", password="y"))
    with pytest.raises(BrokerAway):
        await stranger.once()
    refused = await _until(events, lambda event: event.kind == "auth_error")
    await events.aclose()
    await listening.close()

    assert (made.text, made.subject) == (
        "stream LOGS was made",
        "$JS.EVENT.ADVISORY.STREAM.CREATED.LOGS",
    )
    assert "of account LOGS" in gone.text
    assert gone.server == "n1"
    assert "was refused" in refused.text
    assert caplog.text == ""


async def test_what_cannot_be_heard_is_said(
    connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    events = listen(connection)
    heard = asyncio.ensure_future(_until(events, lambda event: event.kind == "stream_action"))
    while not heard.done():
        await connection.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})
        await connection.api("STREAM.DELETE.OTHER")
        await asyncio.sleep(0.05)
    await events.aclose()

    assert "no events of the server itself" in caplog.text
    assert "no advisories" not in caplog.text


async def test_the_program_ends_after_so_many_of_a_kind(server: Server) -> None:
    program = await asyncio.create_subprocess_exec(
        *(*LOGBROKER, "events", "--server", server.url),
        *("--kind", "client_connect", "--count", "2", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    shown = asyncio.ensure_future(program.communicate())
    while not shown.done():
        other = Connection([server.url], "somebody")
        await other.once()
        await other.close()
        await asyncio.sleep(0.1)
    out, _ = shown.result()

    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [one["kind"] for one in found] == ["client_connect"] * 2
    assert found[0]["event"]["client"]["acc"] == "LOGS"
    assert program.returncode == 0
