import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection
from broker.inspect.events import Event, listen, read_event
from tests.broker.conftest import LOGBROKER
from tests.secured import Secured, admin, start_secured
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Processes(folder) as processes:
        yield start_secured(processes, folder, admin("ann"))


async def _until(events: AsyncIterator[Event], fits: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(60):
        async for event in events:
            if fits(event):
                return event
    raise AssertionError("the events ended")


async def test_clients_and_streams_that_come_and_go_are_told(
    server: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    listening, other = (
        Connection([server.url("ann")], "listening"),
        Connection([server.url("ann")], "somebody"),
    )
    events = listen(listening)
    begun = asyncio.ensure_future(_until(events, lambda event: "somebody" in event.text))
    await asyncio.sleep(0)
    while not begun.done():  # until the subscriptions hold
        await other.once()
        await other.close()
        await asyncio.sleep(0.1)
    await other.once()
    await other.api("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})
    made = await _until(events, lambda event: event.kind == "stream_action")
    await other.close()
    gone = await _until(
        events, lambda event: event.kind == "client_disconnect" and "somebody" in event.text
    )
    stranger = Connection([server.address], "stranger", access=Access(user="x", password="y"))
    with pytest.raises(BrokerAway):
        await stranger.once()
    refused = await _until(events, lambda event: event.kind == "auth_error")
    await events.aclose()
    await listening.close()

    assert (made.text, made.subject) == (
        "stream=OTHER, action=create",
        "$JS.EVENT.ADVISORY.STREAM.CREATED.OTHER",
    )
    assert "somebody" in gone.text
    assert gone.server
    assert "reason=" in refused.text
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


async def test_the_program_ends_after_so_many_of_a_kind(server: Secured) -> None:
    program = await asyncio.create_subprocess_exec(
        *(*LOGBROKER, "events", "--server", server.url("ann")),
        *("--kind", "client_connect", "--count", "2", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    shown = asyncio.ensure_future(program.communicate())
    while not shown.done():
        other = Connection([server.url("ann")], "somebody")
        await other.once()
        await other.close()
        await asyncio.sleep(0.1)
    out, _ = shown.result()

    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [one["kind"] for one in found] == ["client_connect"] * 2
    assert found[0]["event"]["client"]["acc"] == "LOGS"
    assert program.returncode == 0


_CLIENT = {"id": 7, "acc": "LOGS", "name": "logshipper web01", "host": "10.0.0.7", "user": "web01"}
_NOW = "2026-11-21T16:00:00Z"


def _read(subject: str, kind: str = "", **data: Any) -> Event:
    known = {"type": f"io.nats.server.advisory.v1.{kind}"} if kind else {}
    return read_event(subject, json.dumps({**known, **data}).encode(), _NOW)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            _read(
                *("$SYS.ACCOUNT.LOGS.DISCONNECT", "client_disconnect"),
                client=_CLIENT,
                sent={"msgs": 1, "bytes": 10},
                reason="Slow Consumer",
            ),
            "client_disconnect",
            "logshipper web01 web01 LOGS 10.0.0.7, sent=msgs:1 bytes:10, reason=Slow Consumer",
        ),
        (
            _read(
                *("$SYS.SERVER.NID.CLIENT.AUTH.ERR", "client_disconnect"),
                client={"id": 9, "host": "10.0.0.9"},
                reason="Authentication Failure",
            ),
            "auth_error",
            "10.0.0.9, reason=Authentication Failure",
        ),
        (_read("$SYS.SERVER.N.LAMEDUCK", server={"name": "n1"}), "lameduck", "n1"),
        (
            _read("$JS.EVENT.ADVISORY.X", "stream_action", stream="LOGS", action="delete"),
            "stream_action",
            "stream=LOGS, action=delete",
        ),
        (read_event("$SYS.SERVER.NID.ODD", b"\x1b[2J", _NOW), "odd", r"payload=\x1b[2J"),
        (_read("$SYS.ACCOUNT.LOGS.CONNECT", "client_connect", client="o"), "client_connect", ""),
        (
            _read("$SYS.ACCOUNT.A.CONNECT", "client_connect", client={"name": "\x1b]0;x\x07"}),
            "client_connect",
            r"\x1b]0;x\x07",
        ),
    ],
)
def test_an_event_is_one_readable_line(event: Event, kind: str, text: str) -> None:
    assert (event.kind, event.text) == (kind, text)
    assert event.text.isprintable()
