"""What a view shows where leaders are being elected when it first asks."""

from collections.abc import AsyncIterator

import pytest

from broker.inspect.tail import TailOptions, tail
from tests.broker.inspect.conftest import Publish
from tests.elections import Electing

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

    shown = [one.lines async for one in tail(electing, TailOptions(since=since, follow=False))]

    assert shown == [b"a line\n"]
