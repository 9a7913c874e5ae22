"""A partition whose stream was short of space: what its receiver then says of what it did not get."""

import json
import time
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.keeping.room import OnFull, Policy, RoomKeeper
from broker.keeping.room_drops import NAME
from broker.topology import Topology
from receiver.storage.gaps import GAPS
from tests.conftest import apply_topology
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats

LINES = b"x" * 9_999 + b"\n"


@pytest.fixture
def partition(fresh_url: str, tmp_path: Path) -> Partition:
    apply_topology(fresh_url, Topology(partitions=2, max_bytes=1_000_000))
    made = Partition(fresh_url, tmp_path)
    made.claim()
    return made


def make_room(partition: Partition, on_full: OnFull) -> RoomKeeper:
    async def look(connection: Connection) -> RoomKeeper:
        keeper = RoomKeeper(
            connection, partition.folder, "one", lambda: Policy(on_full), time.time_ns
        )
        await keeper.look()
        return keeper

    return partition.ask(look)


def blocks(host: str, first: int, until: int) -> list[tuple[str, bytes, dict[str, str]]]:
    return [ours(host, "app.log", n * len(LINES), LINES) for n in range(first, until)]


def test_what_was_purged_was_received_and_no_gap(partition: Partition) -> None:
    partition.publish(*blocks("web01", 0, 60))
    done = partition.receive()

    assert make_room(partition, OnFull.BACKPRESSURE).report.purged_messages > 10
    partition.publish(*blocks("web01", 60, 65))
    partition.receive(done.until)

    assert partition.read("web01") == LINES * 65
    assert not (partition.output / GAPS).exists()


def test_what_was_dropped_is_what_the_receiver_misses(partition: Partition) -> None:
    partition.publish(*blocks("web01", 0, 5), *blocks("web02", 0, 5))
    done = partition.receive()
    partition.publish(*blocks("web01", 5, 40), *blocks("web02", 5, 40))

    keeper = make_room(partition, OnFull.DROP_OLDEST)
    partition.receive(done.until)

    assert keeper.report.dropped_messages > 0
    told = [json.loads(line) for line in (partition.folder / NAME).read_text().splitlines()]
    dropped = {
        (one["host"], file["file"], file["start"], file["end"])
        for one in told
        if one["state"] == "announced"
        for file in one["files"]
    }
    gaps = [json.loads(line) for line in (partition.output / GAPS).read_text().splitlines()]
    assert {(one["host"], one["file"], one["start"], one["end"]) for one in gaps} == dropped
    lost = sum(one["messages"] for one in told if one["state"] == "announced")
    assert sum(len(partition.read(host)) for host in ("web01", "web02")) == (80 - lost) * len(LINES)


def test_twice_the_lines_that_there_is_room_for_go_through_a_stream_whose_receiver_keeps_up(
    partition: Partition,
) -> None:
    sent, first = 0, 1
    for _ in range(4):
        partition.publish(*blocks("web01", sent, sent + 50))
        sent += 50
        first = partition.receive(first).until
        make_room(partition, OnFull.BACKPRESSURE)

    assert partition.read("web01") == LINES * sent
    assert not (partition.output / GAPS).exists()
