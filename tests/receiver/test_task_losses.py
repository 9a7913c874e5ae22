"""Messages that were removed from the stream before they were received: every message names its predecessor."""

from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import STREAM
from tests.conftest import apply_topology
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats

LINE = b"x" * 9_999 + b"\n"


@pytest.fixture
def partition(fresh_url: str, tmp_path: Path) -> Partition:
    apply_topology(fresh_url, Topology(partitions=2, max_bytes=300_000, discard="old"))
    made = Partition(fresh_url, tmp_path)
    made.claim()
    return made


def shipped(partition: Partition, host: str, after: int, *spans: tuple[str, int]) -> int:
    """Publish a line for each file and start, as a shipper does whose last message is `after`."""
    for file, start in spans:
        subject, payload, headers = ours(host, file, start, LINE)
        expected = {"Nats-Expected-Last-Subject-Sequence": str(after)}
        after = partition.publish((subject, payload, headers | expected))
    return after


def remove(partition: Partition, *sequences: int) -> None:
    async def remove_all(connection: Connection) -> None:
        for sequence in sequences:
            await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": sequence})

    partition.ask(remove_all)


def losses(partition: Partition) -> list[tuple[str, int, int]]:
    found = [one for one in partition.told() if one["kind"] == "loss"]
    return [(one["host"], one["after"], one["sequence"]) for one in found]


def test_a_full_stream_that_discards_old_loses_no_line_in_silence(partition: Partition) -> None:
    shipped(partition, "web01", 0, *(("a", n * len(LINE)) for n in range(120)))

    partition.receive()
    partition.receive(121)

    received = len(partition.read("web01")) // len(LINE)
    assert 0 < received < 120
    assert losses(partition) == [("web01", 0, 120 - received + 1)]


def test_a_loss_is_found_behind_an_earlier_receiver_and_told_once(partition: Partition) -> None:
    last = shipped(partition, "web01", 0, ("a", 0))
    done = partition.receive()
    last = shipped(partition, "web01", last, ("b", 0), ("b", 10_000))
    remove(partition, last - 1)

    done = partition.receive(done.until)
    shipped(partition, "web01", last, ("b", 20_000))
    done = partition.receive(done.until)
    partition.receive(done.until)

    assert losses(partition) == [("web01", 1, 3)]


def test_a_gap_whose_bytes_are_known_is_told_as_a_gap_alone(partition: Partition) -> None:
    shipped(partition, "web01", 0, ("a", 0), ("a", 10_000), ("a", 20_000))
    remove(partition, 2)

    done = partition.receive()
    partition.receive(done.until)

    assert [(one["kind"], one["start"], one["end"]) for one in partition.told()] == [
        ("gap", 10_000, 20_000)
    ]


def test_what_was_received_by_another_and_removed_is_no_loss(partition: Partition) -> None:
    last = shipped(partition, "web01", 0, ("a", 0), ("a", 10_000))
    remove(partition, 1)
    partition.claim(last + 1, epoch=2)  # the state of the receiver before is not here
    shipped(partition, "web01", last, ("a", 20_000))

    done = partition.receive(last + 1, 2)
    partition.receive(done.until, 2)

    assert partition.told() == []


def test_messages_of_strangers_and_claims_between_are_no_loss(partition: Partition) -> None:
    last = shipped(partition, "web01", 0, ("a", 0))
    last = partition.lines("web01", b"a stranger's")
    claim = {"Log-Agent": "2-2", "Log-Read-At": "1"}
    last = partition.publish(("logs.p0.web01", b"", claim))
    last = partition.publish(("logs.p0.web01", b"x", {"Content-Encoding": "br"}))
    shipped(partition, "web01", last, ("a", 10_000))

    done = partition.receive()
    partition.receive(done.until)

    assert partition.told() == []
