"""Ranges of the stream read back through the durable consumer: all of it, in order, whoever disturbs."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.client.connection import Connection, ConnectionLost
from broker.topology import Topology
from broker.wire.streams import MAX_PAYLOAD, PAYLOAD_HEADROOM, consumer_config
from receiver.consume import background, fetch
from receiver.consume.fetch import Reading
from receiver.consume.outcome import Blocked, Cause, Done
from tests.conftest import Server, apply_topology
from tests.receiver.partition import Partition
from tests.receiver.proxy import Proxy

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def sequences(partition: Partition, first: int = 1) -> list[int]:
    connection = background.connection((partition.url,))
    with Reading(connection, partition.assignment(), first) as reading:
        return [delivery.sequence for chunk in reading.batch() for delivery, _ in chunk.messages]


def pull_as_a_stranger(partition: Partition, batch: int) -> None:
    async def pull(connection: Connection) -> None:
        inbox, heard = connection.new_inbox(), asyncio.Event()

        async def hear(message: object) -> None:
            if not message.reply:  # type: ignore[attr-defined]
                heard.set()

        await connection.subscribe(inbox, hear)
        await connection.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.LOGS.receiver-p{partition.number}",
            json.dumps({"batch": batch, "no_wait": True, "max_bytes": 10_000_000}).encode(),
            reply=inbox,
        )
        await asyncio.wait_for(heard.wait(), 20)

    partition.ask(pull)


def reset(partition: Partition, first: int) -> None:
    partition.ask(
        lambda c: c.api(f"CONSUMER.RESET.LOGS.receiver-p{partition.number}", {"seq": first})
    )


def test_a_range_can_be_read_again_and_again(partition: Partition) -> None:
    partition.lines("web01", *(b"%d" % n for n in range(30)))

    assert sequences(partition) == list(range(1, 31))
    assert sequences(partition) == list(range(1, 31))
    assert sequences(partition, 11) == list(range(11, 31))
    assert sequences(partition, 31) == []


def test_what_follows_is_read_on_without_a_reset(partition: Partition) -> None:
    partition.lines("web01", b"1", b"2")
    sequences(partition)
    partition.lines("web01", b"3", b"4")

    assert sequences(partition, 3) == [3, 4]
    info = partition.ask(lambda c: c.api("CONSUMER.INFO.LOGS.receiver-p0"))
    assert info["delivered"]["consumer_seq"] == 4


def test_messages_of_other_partitions_do_not_disturb(partition: Partition) -> None:
    other = replace(partition, number=1)
    for number in range(4):
        partition.lines("web01", b"%d" % number)
        other.lines("db01", b"%d" % number)

    assert sequences(partition) == [1, 3, 5, 7]
    assert sequences(partition, 4) == [5, 7]
    assert sequences(other) == [2, 4, 6, 8]


@pytest.mark.parametrize("taken", [1, 4, 8, 12])
@pytest.mark.parametrize("begin", [1, 9])
def test_a_stranger_who_used_the_consumer_costs_no_line(
    partition: Partition, taken: int, begin: int
) -> None:
    partition.lines("web01", *(b"%d" % n for n in range(8)))
    assert len(sequences(partition)) == 8
    partition.lines("web01", *(b"%d" % n for n in range(20)))
    reset(partition, begin)
    pull_as_a_stranger(partition, taken)

    assert sequences(partition, 9) == list(range(9, 29))


def test_a_consumer_that_was_deleted_is_made_again(partition: Partition) -> None:
    partition.lines("web01", *(b"%d" % n for n in range(5)))
    sequences(partition)
    partition.ask(lambda c: c.api("CONSUMER.DELETE.LOGS.receiver-p0"))

    assert sequences(partition, 3) == [3, 4, 5]
    info = partition.ask(lambda c: c.api("CONSUMER.INFO.LOGS.receiver-p0"))
    expected = consumer_config(0)
    assert {key: info["config"].get(key) for key in expected} == expected


@pytest.mark.parametrize(
    "change",
    [
        {"filter_subject": "logs.p0.web01"},
        {"headers_only": True},
        {"ack_wait": 1_000_000_000},
        {"pause_until": "2100-01-01T00:00:00Z"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_consumer_that_would_leave_lines_out_blocks(
    partition: Partition, change: dict[str, object]
) -> None:
    partition.lines("web01", b"1")
    config = {**consumer_config(0), **change}
    name = f"CONSUMER.CREATE.LOGS.receiver-p0.{config['filter_subject']}"
    partition.ask(lambda c: c.api(name, {"stream_name": "LOGS", "config": config}))

    outcome = partition.run()

    assert isinstance(outcome, Blocked)
    assert "delete it" in outcome.detail
    assert partition.files() == {}


@pytest.mark.parametrize(
    "change",
    [{"filter_subject": "logs.p0.web01"}, {"headers_only": True}],
    ids=["filter", "headers"],
)
def test_a_consumer_that_is_changed_during_a_stay_passes_no_line_over(
    partition: Partition, change: dict[str, object]
) -> None:
    partition.lines("web01", b"1")
    connection = background.connection((partition.url,))
    with Reading(connection, partition.assignment(), 1) as reading:
        list(reading.batch())
        config = {**consumer_config(0), **change}
        name = f"CONSUMER.CREATE.LOGS.receiver-p0.{config['filter_subject']}"
        partition.ask(lambda c: c.api(name, {"stream_name": "LOGS", "config": config}))
        partition.lines("web02", b"2")
        partition.lines("web01", b"3")

        with pytest.raises(ConnectionLost, match="might leave lines out; delete it"):
            list(reading.batch(1))


def test_the_largest_message_comes_through_among_small_ones(partition: Partition) -> None:
    largest = b"x" * (MAX_PAYLOAD - PAYLOAD_HEADROOM - 1) + b"\n"
    partition.lines("web01", b"before\n", largest, largest, b"after\n")

    done = replace(partition, limit=1_000_000).receive()

    assert done.until == 5
    assert partition.read("web01") == b"before\n" + largest * 2 + b"after\n"


def test_more_small_messages_than_one_pull_takes_come_in_order(partition: Partition) -> None:
    count = 10_000

    async def publish(connection: Connection) -> None:
        for number in range(count - 1):
            if number % 500:
                await connection.publish("logs.p0.web01", b"%d" % number)
            else:
                await connection.ask("logs.p0.web01", b"%d" % number, patience=180)
        await connection.ask("logs.p0.web01", b"last", patience=180)

    partition.ask(publish)

    assert sequences(partition) == list(range(1, count + 1))
    # the consumer's position at the end of the pulls is the one that the next batch needs
    assert sequences(partition, count + 1) == []


def test_a_batch_ends_near_its_limit_and_the_next_one_follows(partition: Partition) -> None:
    block = b"x" * 999_999 + b"\n"
    partition.lines("web01", *([block] * 30))
    small = replace(partition, limit=9_000_000)

    first = small.run()

    assert isinstance(first, Done)
    assert 9_000_000 <= first.size <= 20_000_000
    assert first.pending == 30 - first.messages
    small.receive(first.until)
    assert small.read("web01") == block * 30


@pytest.mark.parametrize("limit", [16, 48, 64], ids="{} MiB".format)
def test_no_size_of_a_batch_has_its_messages_come_one_by_one(
    partition: Partition, limit: int
) -> None:
    partition.lines("web01", b"1", b"2", b"3")
    assignment = replace(partition, limit=limit * 1024 * 1024).assignment()

    with Reading(background.connection((partition.url,)), assignment, 1) as reading:
        pulls = [len(chunk.messages) for chunk in reading.batch()]

    assert pulls == [3]


@pytest.fixture
def proxy(logs_url: str) -> Iterator[tuple[Proxy, str]]:
    head, _, port = logs_url.rpartition(":")
    made = Proxy(int(port))
    yield made, f"{head}:{made.port}"
    made.close()


def test_a_connection_cut_in_the_middle_of_a_pull_costs_no_line(
    partition: Partition, proxy: tuple[Proxy, str]
) -> None:
    between, url = proxy
    block = b"x" * 99_999 + b"\n"
    partition.lines("web01", *([block] * 100))
    through = replace(partition, url=url)
    between.cut_after = 3_000_000

    outcome = through.run()

    assert isinstance(outcome, Blocked), outcome
    assert outcome.cause is Cause.BROKER
    again = through.run()
    assert isinstance(again, Done)
    assert partition.read("web01") == block * 100


def test_a_slow_line_is_waited_for_as_long_as_something_comes(
    partition: Partition, proxy: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    between, url = proxy
    block = b"x" * 99_999 + b"\n"
    partition.lines("web01", *([block] * 50))
    monkeypatch.setattr(fetch, "_PATIENCE", 2.0)
    between.pause = 0.05

    began = time.monotonic()
    outcome = replace(partition, url=url).run()

    assert time.monotonic() - began > 2.0
    assert isinstance(outcome, Done), outcome
    assert partition.read("web01") == block * 50


def test_a_broker_killed_between_batches_costs_no_line(own_server: Server, tmp_path: Path) -> None:
    apply_topology(own_server.url, Topology(partitions=2))
    partition = Partition(own_server.url, tmp_path)
    partition.claim()
    partition.lines("web01", b"1", b"2")
    first = partition.receive()
    own_server.kill_and_restart()
    partition.lines("web01", b"3")

    outcomes = [partition.run(first.until) for _ in range(2)]

    assert isinstance(outcomes[-1], Done)
    assert partition.read("web01") == b"1\n2\n3\n"


def test_a_stay_whose_broker_has_gone_is_over_at_once(own_server: Server, tmp_path: Path) -> None:
    apply_topology(own_server.url, Topology(partitions=2))
    partition = Partition(own_server.url, tmp_path)
    partition.claim()
    partition.lines("web01", b"1")
    connection = background.connection((partition.url,))
    with Reading(connection, partition.assignment(), 1) as reading:
        assert sum(len(chunk.messages) for chunk in reading.batch()) == 1
        own_server.stop()

        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            next(reading.batch(1.0), None)
        assert time.monotonic() - began < 5


def test_nothing_stays_subscribed_after_a_batch(partition: Partition) -> None:
    partition.lines("web01", b"1")
    partition.run()
    connection = background.connection((partition.url,))
    threads = threading.active_count()

    for _ in range(5):
        partition.run()

    async def subscriptions() -> int:
        return len((await connection.client())._subs)

    assert (
        background.wait(subscriptions(), 5) <= 1 + 1
    )  # the inbox of requests, one that ends just now
    assert threading.active_count() == threads


@pytest.mark.parametrize("limit", [1, 64_000_000], ids=["a pull", "all"])
def test_what_was_put_back_ends_a_batch_and_begins_the_next(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(fetch, "_PULL_MESSAGES", 4)
    partition.lines("web01", *(b"%d" % number for number in range(10)))
    assignment = replace(partition, limit=limit).assignment()
    batches: list[list[int]] = []

    with Reading(background.connection((partition.url,)), assignment, 1) as reading:
        while not batches or batches[-1]:
            batches.append([])
            for chunk in reading.batch():
                batches[-1] += [delivery.sequence for delivery, _ in chunk.beginning(3).messages]
                if rest := chunk.behind(3):
                    reading.end_batch(rest)

    assert [number for batch in batches for number in batch] == list(range(1, 11))
    assert all(len(batch) <= 3 + 1 for batch in batches)
