"""A host that floods the broker holds up no other host, and fills nobody's log."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nats_logship.client.access import Access
from nats_logship.client.connection import Connection
from nats_logship.client.nkey import seed_of
from nats_logship.wire.subjects import Subject, make_inbox
from tests.raw import Raw
from tests.shipper.publish.agents import PublishingAgent, round_of
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.nats, pytest.mark.journey]

BAD, HONEST = "evil", "web01"
# seconds in which another host's message is acknowledged: 0.4 on a quiet machine, and 43 without a
# limit of what waits; other tests may run beside this one
SOON = 20.0


class Broker(Suite):
    """A broker with credentials for two hosts and an admin."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        super().__init__(folder, processes)
        owners = (("admin", "ops"), ("host", BAD), ("host", HONEST))
        self.keys = {name: self.credential(kind, name) for kind, name in owners}
        self.access = Access(nkey=self.keys["ops"])
        self.process: Process = self.start_broker()

    def connect(self, name: str) -> Raw:
        port = int(self.url.rpartition(":")[2])
        return Raw(port, seed=seed_of(self.keys[name].read_text()))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("flood")
    with Processes(folder) as processes:
        yield Broker(folder, processes)


@pytest.fixture
async def agent(broker: Broker) -> AsyncIterator[PublishingAgent]:
    connection = Connection([broker.url], "honest", Access(nkey=broker.keys[HONEST]))
    yield await PublishingAgent(connection).open()
    await connection.close()


def last_sequence(admin: Raw) -> int:
    return int(admin.ask("$JS.API.STREAM.INFO.LOGS")["state"]["last_seq"])


@contextmanager
def flooding(broker: Broker, arguments: bytes) -> Iterator[None]:
    """Have the bad host say it in one write, and go on when the first of it has come."""
    with broker.connect(BAD) as client, broker.connect("ops") as admin:
        last = last_sequence(admin)
        thread = threading.Thread(target=client.send_only, args=(arguments,))
        thread.start()
        wait_until("it comes", lambda: last_sequence(admin) > last, 30, [broker.process])
        yield
        thread.join()


@pytest.mark.parametrize(
    "reply", ["", f" {make_inbox(BAD)}.x"], ids=["unacknowledged", "acknowledged"]
)
async def test_fifty_thousand_messages_hold_up_no_other_host(
    broker: Broker, agent: PublishingAgent, reply: str
) -> None:
    subject, clock = Subject.for_host(BAD, 2), asyncio.get_running_loop().time
    took = list[float]()

    with flooding(broker, f"PUB {subject}{reply} 1\r\nx\r\n".encode() * 50_000):
        for number in range(5):
            began = clock()
            await agent.publish(round_of(agent, number))
            took.append(clock() - began)

    assert max(took) < SOON
    assert agent.lost == 0


def test_thousands_of_denials_are_few_lines_of_the_log_and_a_count(
    processes: Processes, tmp_path: Path
) -> None:
    broker = Broker(tmp_path, processes)
    with broker.connect(BAD) as client:
        for _ in range(4):
            denied = client.send(b"PUB logs.p0.web02 1\r\nx\r\n" * 5000)
            assert len(denied.errors) == 5000
        for number in range(200):  # connections that are not let in
            with Raw(client.port, f"nobody{number}"):
                pass

    assert broker.process.stop() == 0

    lines = broker.process.read_log().splitlines()
    denied = [line for line in lines if "Publish Violation" in line]
    assert 0 < len(denied) <= 10
    assert all(f"host {BAD} - Publish Violation - " in line for line in denied)
    assert 0 < sum("authentication error" in line for line in lines) <= 100
    assert any("19999 more times" in line for line in denied)
    left_out = [line for line in lines if "more lines were left out" in line]
    assert [line for line in left_out if "127.0.0.1 - " in line] == left_out != []
