"""Ranges of the stream read back through the durable consumer: all of it, in order, whoever disturbs."""

import pytest

from broker.client.answer import ConnectionLost
from broker.client.pulling import pull
from receiver.consume import background
from receiver.consume.assignment import Blocked
from receiver.consume.fetch import PartitionReader, consumer_config
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats


def sequences(partition: Partition, first: int = 1) -> list[int]:
    connection = background.connection((partition.url,))
    with PartitionReader(connection, partition.assignment(), first, "LOGS") as reading:
        return [delivery.sequence for pull in reading.batch() for delivery, _ in pull]


def pull_as_a_stranger(partition: Partition, batch: int) -> None:
    partition.ask(lambda c: pull(c, f"LOGS.receiver-p{partition.number}", batch, 10_000_000))


def reset(partition: Partition, first: int) -> None:
    partition.ask(
        lambda c: c.api(f"CONSUMER.RESET.LOGS.receiver-p{partition.number}", {"seq": first})
    )


def configure(partition: Partition, **change: object) -> None:
    config = {**consumer_config(0), **change}
    name = f"CONSUMER.CREATE.LOGS.receiver-p0.{config['filter_subject']}"
    partition.ask(lambda c: c.api(name, {"stream_name": "LOGS", "config": config}))


@pytest.mark.parametrize("taken", [4, 12])
def test_a_stranger_who_used_the_consumer_costs_no_line(partition: Partition, taken: int) -> None:
    partition.lines("web01", *(b"%d" % n for n in range(8)))
    assert len(sequences(partition)) == 8
    partition.lines("web01", *(b"%d" % n for n in range(20)))
    reset(partition, 1)
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
        {"pause_until": "2100-01-01T00:00:00Z"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_consumer_that_would_leave_lines_out_blocks(
    partition: Partition, change: dict[str, object]
) -> None:
    partition.lines("web01", b"1")
    configure(partition, **change)

    outcome = partition.run()

    assert isinstance(outcome, Blocked)
    assert "delete it" in outcome.detail
    assert partition.files() == {}


def test_no_message_is_taken_without_its_payload(partition: Partition) -> None:
    """Somebody changes the consumer while a session is under way."""
    partition.lines("web01", b"1\n")
    connection = background.connection((partition.url,))
    with PartitionReader(connection, partition.assignment(), 1, "LOGS") as reading:
        assert len(list(reading.batch())) == 1
        configure(partition, headers_only=True)
        partition.lines("web01", b"2\n", b"3\n")

        with pytest.raises(ConnectionLost, match=r"headers_only.*delete it"):
            list(reading.batch())


def test_a_message_that_says_it_is_without_its_payload_stops_nobody(partition: Partition) -> None:
    partition.publish(("logs.p0.web01", b"", {"Nats-Msg-Size": "5"}))
    partition.lines("web01", b"1\n")

    assert sequences(partition) == [1, 2]
