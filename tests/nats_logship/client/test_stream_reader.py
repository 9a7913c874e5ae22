"""The reader of a stream: which deliveries it accepts, and what remains at the broker."""

from contextlib import nullcontext

import pytest

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import (
    NameInUse,
    OutOfOrder,
    StreamReader,
    at_sequence,
    at_time,
)
from nats_logship.wire.delivery import Delivery, RawMessage
from nats_logship.wire.streams import STREAM

MESSAGE = RawMessage("logs.p0.web01", "", b"", b"a\n")


async def publish(connection: Connection, count: int) -> None:
    for _ in range(count):
        await connection.ask("logs.p0.web01", b"a\n")


@pytest.mark.parametrize(
    ("deliveries", "is_complete"),
    [
        pytest.param([(1, 5), (2, 9)], True, id="with gaps of other subjects"),
        pytest.param([(1, 5), (3, 6)], False, id="a lost delivery"),
        pytest.param([(2, 5)], False, id="a lost first delivery"),
        pytest.param([(1, 5), (2, 5)], False, id="a sequence twice"),
        pytest.param([(1, 3)], False, id="a sequence that was read before"),
    ],
)
def test_only_the_next_deliveries_are_accepted(
    deliveries: list[tuple[int, int]], is_complete: bool
) -> None:
    reader = StreamReader(Connection([], "test"), STREAM, "reader")
    reader.next_sequence = 4
    messages = [(Delivery(1, sequence, number, 0, 0), MESSAGE) for number, sequence in deliveries]

    with nullcontext() if is_complete else pytest.raises(OutOfOrder):
        reader.verify(messages)

    assert reader.next_sequence == (deliveries[-1][1] + 1 if is_complete else 4)


@pytest.mark.nats
async def test_counting_replaces_a_consumer_and_leaves_none(connection: Connection) -> None:
    await publish(connection, 3)
    reader, other = (StreamReader(connection, STREAM, "one") for _ in range(2))
    await other.create(at_sequence(1))
    with pytest.raises(NameInUse):
        await reader.create(at_sequence(1))

    assert await reader.count(at_sequence(2)) == 2
    assert await reader.count(at_time(2**60)) == 3
    assert not (await connection.api(f"CONSUMER.NAMES.{STREAM}")).get("consumers")


@pytest.mark.nats
@pytest.mark.parametrize("does", ["pulls", "replaces"])
async def test_a_second_reader_of_the_consumer_is_noticed(
    connection: Connection, does: str
) -> None:
    await publish(connection, 3)
    reader, other = (StreamReader(connection, STREAM, "one") for _ in range(2))
    await reader.create(at_sequence(1))
    reader.verify((await reader.pull(2)).messages)
    await reader.require_alone()

    await (other.pull(1) if does == "pulls" else other.replace(at_sequence(1)))

    with pytest.raises(ConnectionLost, match=f"somebody else {does[:-1]}.* consumer LOGS.one"):
        await reader.require_alone()
