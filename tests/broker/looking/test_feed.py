"""Reading the stream forward, whatever becomes of the consumer and of messages of every size."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable

import pytest

from broker.client.connection import Connection
from broker.looking import feed as room
from broker.looking.feed import EACH_LAST, Feed, Start, Taken, at_sequence
from broker.wire.streams import STREAM
from tests.broker.looking.conftest import Publish

pytestmark = pytest.mark.nats


async def _consumers(connection: Connection) -> list[str]:
    return list((await connection.api(f"CONSUMER.NAMES.{STREAM}")).get("consumers") or [])


async def _take(feed: Feed, number: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(90):
        while len(found) < number:
            found.extend(taken.delivery.sequence for taken in await feed.wait())
    return found


async def test_a_consumer_that_was_removed_costs_nothing(
    connection: Connection, publish: Publish
) -> None:
    feed = Feed(connection, at_sequence(1))
    for _ in range(3):
        await publish("web01", b"a\n")
    first = await _take(feed, 3)
    (name,) = await _consumers(connection)
    await connection.api(f"CONSUMER.DELETE.{STREAM}.{name}")
    await publish("web01", b"b\n")

    rest = await _take(feed, 1)

    await feed.close()
    assert first + rest == [1, 2, 3, 4]
    assert await _consumers(connection) == []


async def test_a_message_larger_than_a_pull_comes_in_its_place(
    connection: Connection, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_PULL_BYTES", 3000)
    for size in (10, 5000, 10, 200_000, 5000, 10):
        await publish("web01", b"x" * size + b"\n")
    feed = Feed(connection, at_sequence(1))

    assert await _take(feed, 6) == [1, 2, 3, 4, 5, 6]
    await feed.close()


async def test_pulls_that_end_full_are_followed_by_others(
    connection: Connection, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_BATCH", 7)
    await asyncio.gather(*(publish("web01", b"a\n") for _ in range(40)))
    feed = Feed(connection, at_sequence(3), headers_only=True)

    found: list[int] = []
    while taken := await feed.take_up_to(40):
        found.extend(one.delivery.sequence for one in taken)
        assert not any(one.message.data for one in taken)

    await feed.close()
    assert found == list(range(3, 41))


@pytest.mark.parametrize("start", [at_sequence(1), EACH_LAST], ids=["all", "last of each"])
@pytest.mark.parametrize("kept", [0, 3])
async def test_what_is_purged_meanwhile_is_not_waited_for(
    connection: Connection,
    publish: Publish,
    monkeypatch: pytest.MonkeyPatch,
    start: Start,
    kept: int,
) -> None:
    monkeypatch.setattr(room, "_BATCH", 10)
    await asyncio.gather(*(publish(f"web{n}", b"a\n") for n in range(40)))
    feed = Feed(connection, start, headers_only=True)
    found = [one.delivery.sequence for one in await feed.take_up_to(40)]
    await connection.api(f"STREAM.PURGE.{STREAM}", {"keep": kept} if kept else {})

    async with asyncio.timeout(60):
        while taken := await feed.take_up_to(40):
            found.extend(one.delivery.sequence for one in taken)

    await feed.close()
    assert found == [*range(1, 11), *range(41 - kept, 41)]


async def test_the_last_of_each_comes_first_and_then_what_is_new(
    connection: Connection, publish: Publish
) -> None:
    for host in ("a", "b", "a", "b", "c"):
        await publish(host, b"x\n")
    feed = Feed(connection, EACH_LAST)

    before = await _take(feed, 3)
    await publish("a", b"y\n")

    assert before == [3, 4, 5]
    assert await _take(feed, 1) == [6]
    await feed.close()


async def test_a_stream_that_is_not_there_is_not_waited_for(connection: Connection) -> None:
    await connection.api(f"STREAM.DELETE.{STREAM}")

    with pytest.raises(room.Rejected, match="stream not found"):
        await Feed(connection, at_sequence(1)).wait()


async def test_closing_what_was_never_read_asks_nothing(connection: Connection) -> None:
    await Feed(connection, at_sequence(1)).close()

    assert await _consumers(connection) == []


@pytest.mark.parametrize(
    "words", [("hosts",), ("tail", "--no-follow", "--lines", "100"), ("top", "--once")], ids=str
)
def test_a_command_ends_though_what_it_reads_is_purged(
    logbroker_inside: Callable[..., "subprocess.CompletedProcess[str]"],
    logs_url: str,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(room, "_BATCH", 10)
    take_up_to = Feed.take_up_to

    async def on_its_own(ask: Callable[[Connection], Awaitable[object]]) -> None:
        connection = Connection([logs_url], "test")
        await connection.once()
        await ask(connection)
        await connection.close()

    async def fill(connection: Connection) -> None:
        await asyncio.gather(
            *(connection.ask(f"logs.p0.web{n}", b"a\n", patience=60) for n in range(40))
        )

    async def purged_meanwhile(feed: Feed, last: int) -> list[Taken]:
        taken = await take_up_to(feed, last)
        await on_its_own(lambda connection: connection.api(f"STREAM.PURGE.{STREAM}"))
        return taken

    asyncio.run(on_its_own(fill))
    monkeypatch.setattr(Feed, "take_up_to", purged_meanwhile)

    ended = logbroker_inside(words[0], "--server", logs_url, *words[1:])

    assert (ended.returncode, ended.stderr) == (0, "")
