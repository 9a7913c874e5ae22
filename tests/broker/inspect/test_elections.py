"""What a view shows where leaders are being elected when it first asks."""

from collections.abc import AsyncIterator

import pytest

from broker.client.connection import Rejected
from broker.inspect.reader import MessageReader, at_sequence
from broker.inspect.tail import TailOptions, tail
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


async def test_what_was_opened_half_way_is_opened_again(
    electing: Electing, publish: Publish
) -> None:
    await publish("web01", b"a line\n")
    reader = MessageReader(electing, "LOGS", at_sequence(1))

    with pytest.raises(Rejected, match=NO_LEADER.description):
        await reader.read_until(1)
    taken = await reader.read_until(1)
    await reader.close()

    assert [one.sequence for one in taken] == [1]
