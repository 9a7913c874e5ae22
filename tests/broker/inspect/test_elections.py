"""What a view shows where leaders are being elected when it first asks."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from broker.client.config import current_partitions
from broker.client.connection import Connection, Rejected
from broker.inspect.ask import observe
from broker.inspect.checks import Check
from broker.inspect.reader import MessageReader, at_sequence
from broker.inspect.tail import TailOptions, tail
from broker.inspect.top import watch
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET
from tests.broker.inspect.conftest import Publish
from tests.elections import NO_LEADER, Electing

pytestmark = pytest.mark.nats


@pytest.fixture
async def electing(logs_url: str) -> AsyncIterator[Electing]:
    connection = Electing([logs_url], "test")
    await connection.once()
    yield connection
    await connection.close()


@pytest.mark.parametrize("since", [1, None], ids=["a place", "the last lines"])
async def test_tail_shows_the_lines(
    electing: Electing, publish: Publish, since: int | None
) -> None:
    await publish("web01", b"a line\n")

    shown = [some async for some in tail(electing, TailOptions(since=since, follow=False))]

    assert b"".join(piece.lines for some in shown for piece in some) == b"a line\n"


async def test_check_knows_the_status(electing: Electing, publish: Publish) -> None:
    await publish("web01", b"a line\n")

    seen = await observe(electing, list(Check), datetime(2026, 11, 20, tzinfo=UTC))

    assert seen.trouble == ""
    assert seen.status is not None
    assert seen.status.messages == 1


async def test_top_begins(electing: Electing, publish: Publish) -> None:
    await publish("web01", b"a line\n")

    async with aclosing(watch(electing, 0.1)) as views:
        view = await anext(views)

    assert [one.host for one in view.hosts] == ["web01"]


async def test_what_was_opened_half_way_is_opened_again(
    electing: Electing, publish: Publish
) -> None:
    await publish("web01", b"a line\n")
    reader = MessageReader(electing, "LOGS", at_sequence(1))

    for _ in ("the stream", "the consumer"):
        with pytest.raises(Rejected, match=NO_LEADER.description):
            await reader.read_until(1)
    taken = await reader.read_until(1)
    await reader.close()

    assert [one.sequence for one in taken] == [1]


async def test_a_bucket_that_nobody_answers_for_is_not_taken_for_none(
    connection: Connection,
) -> None:
    config = next(
        one for one in Topology(partitions=2).streams() if one["name"] == f"KV_{CONFIG_BUCKET}"
    )
    await connection.api(f"STREAM.UPDATE.{config['name']}", config | {"allow_direct": False})

    with pytest.raises(Rejected, match="nobody listens"):
        await current_partitions(connection)

    await connection.api(f"STREAM.UPDATE.{config['name']}", config)
    assert await current_partitions(connection) == 2
