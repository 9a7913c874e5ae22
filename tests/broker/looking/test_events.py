import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from bench.processes import Processes
from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection, ConnectionLost, Rejected
from broker.looking import hosts
from broker.looking.event import Event
from broker.looking.events import listen
from broker.looking.lines import Run
from broker.looking.one import fetch
from broker.looking.status import ask, glance
from broker.looking.tail import Wanted, tail
from broker.looking.top import watch
from tests.broker.conftest import LOGBROKER
from tests.secured import Secured, admin, host, start_secured

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Processes(folder) as processes:
        yield start_secured(processes, folder, admin("ann"), host("web01"))


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
        "stream OTHER was made",
        "$JS.EVENT.ADVISORY.STREAM.CREATED.OTHER",
    )
    assert "of account LOGS" in gone.text
    assert gone.server
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


async def test_an_admin_sees_all_and_a_host_nothing(server: Secured) -> None:
    ann = Connection([server.address], "ann", access=server.access("ann"))
    await ann.once()
    sender = Connection([server.address], "web01", ("_INBOX_web01",), access=server.access("web01"))
    await sender.once()
    await sender.ask("logs.p1.web01", b"a line\n")

    status, found = await ask(ann), await hosts.ask(ann, count_all=True)
    shown = [lines async for lines in tail(ann, Wanted(follow=False), _plain())]
    pictures = watch(ann, 0.05)
    picture = await anext(pictures)
    await pictures.aclose()
    message = await fetch(ann, None)
    with pytest.raises((Rejected, ConnectionLost)):
        await glance(sender)
    await sender.close()
    await ann.close()

    assert (status.messages, [one.host for one in found.hosts]) == (1, ["web01"])
    assert b"".join(shown) == message.lines() == b"a line\n"
    assert [one.host for one in picture.hosts] == ["web01"]


def _plain() -> Run:
    return Run(prefixed=False, for_terminal=False)
