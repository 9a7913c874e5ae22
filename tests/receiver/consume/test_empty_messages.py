"""Messages without payload and headers, which nats-server takes as the end of a pull that crosses accounts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.streams import MAX_PAYLOAD, PAYLOAD_HEADROOM
from tests import secured
from tests.receiver.partition import Partition
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[secured.Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Processes(folder) as processes:
        yield secured.start_secured(
            *(processes, folder),
            secured.receiver("central", 0),
            secured.receiver("everything"),
            secured.host("web01"),
        )


@pytest.fixture
def anybody(server: secured.Secured, tmp_path: Path) -> Partition:
    """Return the partition for whoever is in the account of the stream."""
    return Partition(server.url(), tmp_path)


@pytest.fixture
def first(anybody: Partition) -> int:
    """Claim the partition, empty, and return the sequence that its next message will have."""
    anybody.ask(lambda connection: connection.api("STREAM.PURGE.LOGS"))
    info = anybody.ask(lambda connection: connection.api("STREAM.INFO.LOGS"))
    sequence = int(info["state"]["last_seq"]) + 1
    anybody.claim(sequence)
    return sequence


def store(partition: Partition, *payloads: bytes) -> int:
    """Publish these to the partition and return the sequence of the last one."""

    async def publish(connection: Connection) -> int:
        for payload in payloads[:-1]:
            await connection.publish("logs.p0.web01", payload)
        return int((await connection.ask("logs.p0.web01", payloads[-1], patience=60))["seq"])

    return partition.ask(publish)


@pytest.mark.parametrize("name", ["central", secured.OWN], ids=["across accounts", "one account"])
def test_empty_messages_are_passed_over_and_all_lines_received(
    server: secured.Secured, anybody: Partition, first: int, name: str
) -> None:
    largest = b"x" * (MAX_PAYLOAD - PAYLOAD_HEADROOM - 1) + b"\n"
    payloads = [b"", b"1\n", *[b""] * 30, largest, b"2\n", largest, largest, b"3\n", b"4\n", b""]
    last = store(anybody, *payloads)

    replace(anybody, url=server.address, access=server.access(name)).receive(first)

    assert anybody.read("web01") == b"".join(payloads)
    assert anybody.offset().next == last + 1
