"""What servers and JetStream report, as it happens: heard by who may, and a readable line each."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from broker.inspect.events import Event, read_event
from nats_logship.client.access import Access
from nats_logship.client.connection import BrokerAway, Connection
from tests.secured import Secured, admin, start_secured
from tests.support.processes import Processes, installed

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Processes(folder) as processes:
        yield start_secured(processes, folder, admin("ann"))


async def test_the_program_tells_who_comes_goes_and_is_refused(server: Secured) -> None:
    program = await asyncio.create_subprocess_exec(
        *(installed("logbroker"), "events", "--server", server.url("ann"), "--json"),
        *("--kind", "auth_*", "--kind", "client_disconnect", "--count", "4"),
        stdout=asyncio.subprocess.PIPE,
    )
    shown = asyncio.ensure_future(program.communicate())
    stranger = Access(user="x", password="y")
    while not shown.done():
        other = Connection([server.url("ann")], "somebody")
        await other.connect()
        await other.close()
        with pytest.raises(BrokerAway):
            await Connection([server.address], "stranger", access=stranger).connect()
        await asyncio.sleep(0.1)
    out, _ = shown.result()

    found: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert {one["kind"] for one in found} == {"client_disconnect", "auth_error"}
    assert any("somebody" in one["text"] for one in found)
    assert program.returncode == 0


KNOWN = {"UKEY": "host web01"}
_CLIENT = {"id": 7, "acc": "LOGS", "name": "logshipper web01", "host": "10.0.0.7"}


def _read(subject: str, kind: str = "", **data: Any) -> Event:
    known = {"type": f"io.nats.server.advisory.v1.{kind}"} if kind else {}
    payload = json.dumps({**known, **data}).encode()
    return read_event(subject, payload, "2026-11-21T16:00:00Z", KNOWN)


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (
            _read(
                "$SYS.ACCOUNT.A.DISCONNECT", "client_disconnect", client=_CLIENT, sent={"msgs": 1}
            ),
            "client_disconnect",
            "logshipper web01 LOGS 10.0.0.7, sent=msgs:1",
        ),
        (_read("$SYS.A", "x", client={"name": "a", "user": "UKEY"}), "x", "a host web01"),
        (_read("$SYS.A", "x", client={"name": "a", "user": "UOTHER"}), "x", "a UOTHER"),
        (
            _read("$SYS.SERVER.N.CLIENT.AUTH.ERR", "x", client={"user": "UKEY"}),
            "auth_error",
            "by its key host web01",
        ),
        (_read("$SYS.SERVER.N.LAMEDUCK", server={"name": "n1"}), "lameduck", "n1"),
        (read_event("$SYS.SERVER.NID.ODD", b"\x1b[2J", ""), "odd", r"payload=\x1b[2J"),
        (_read("$SYS.ACCOUNT.LOGS.CONNECT", "client_connect", client="o"), "client_connect", ""),
        (_read("$SYS.A", "x", client={"name": "\x1b]0;x\x07"}), "x", r"\x1b]0;x\x07"),
    ],
)
def test_an_event_is_one_readable_line(event: Event, kind: str, text: str) -> None:
    assert (event.kind, event.text) == (kind, text)
    assert event.text.isprintable()
