"""A standby waits as long as the owner lives, and is the only one to follow when it is gone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim, EntryTaken, OffsetEntry
from receiver.driver import presence as presence_module
from receiver.driver.presence import Presence, Standby, is_gone
from tests.conftest import Server

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SILENCE = 0.5


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence_module, "_STANDBY_LOOK", 0.05)
    monkeypatch.setattr(presence_module, "_LOOK", 0.05)


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "standby")
    yield connection
    await connection.close()


def standby(connection: Connection, silence: float = SILENCE) -> Standby:
    return Standby(connection, 0, silence, lambda owner: None)


async def owner(connection: Connection) -> tuple[Presence, Claim]:
    present = Presence(connection, lambda: b"owner:1")
    await present.begin()
    ledger = Claim(connection, 0, "owner:1", "LOGS", presence=present.address)
    await ledger.claim(NOW)
    return present, ledger


async def stored(connection: Connection) -> Offset:
    entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    assert entry
    return Offset.decode(entry.value)


async def waits(waiting: Standby, seconds: float = 3 * SILENCE) -> bool:
    """Return whether it still waits after a time."""
    try:
        async with asyncio.timeout(seconds):
            await waiting.wait(asyncio.Event())
    except TimeoutError:
        return True
    return False


async def test_a_partition_that_nobody_has_is_free_at_once(connection: Connection) -> None:
    assert await standby(connection).wait(asyncio.Event()) == 0


async def test_a_living_owner_is_left_alone_and_a_gone_one_followed(
    connection: Connection, logs_url: str
) -> None:
    theirs = Connection([logs_url], "owner")
    _, ledger = await owner(theirs)

    assert await waits(standby(connection))

    await theirs.close()
    revision = await standby(connection).wait(asyncio.Event())
    assert revision is not None
    heir = await Claim(connection, 0, "heir:2", "LOGS").claim(NOW, revision)
    assert heir
    assert ledger.offset
    assert (heir.epoch, heir.next) == (ledger.offset.epoch + 1, ledger.offset.next)


async def test_an_owner_that_commits_is_alive_whatever_else_is_wrong(
    connection: Connection, logs_url: str
) -> None:
    await owner(connection)
    entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    assert entry
    stays, stop = standby(connection, 1.0), asyncio.Event()
    other = Connection([logs_url], "asks")
    waiting = asyncio.ensure_future(stays.wait(stop))
    mine = OffsetEntry(connection, 0, lambda: NOW)
    await mine.read()
    for number in range(2, 30):
        await mine.move(Done(0, number - 1, number, stored_at=1))
        await asyncio.sleep(0.05)

    assert not waiting.done()
    stop.set()
    assert await waiting is None
    await other.close()


async def test_an_owner_that_cannot_be_asked_is_never_taken_for_dead(
    connection: Connection,
) -> None:
    await Claim(connection, 0, "mute:1", "LOGS").claim(NOW)

    assert await waits(standby(connection))


async def test_an_owner_answers_through_a_new_connection(
    connection: Connection, logs_url: str
) -> None:
    theirs = Connection([logs_url], "owner")
    present, _ = await owner(theirs)
    lasting = asyncio.ensure_future(present.last())
    client = await theirs.client()

    await client.close()

    for _ in range(200):
        if not (gone := await is_gone(connection, present.address)):
            break
        await asyncio.sleep(0.05)
    assert not gone
    lasting.cancel()
    await theirs.close()


async def test_an_owner_that_ends_in_order_is_followed_at_once_and_its_tasks_commit_nothing_more(
    connection: Connection,
) -> None:
    _, ledger = await owner(connection)
    late = OffsetEntry(connection, 0, lambda: NOW)
    await late.read()

    await ledger.release()

    revision = await asyncio.wait_for(standby(connection, 3600.0).wait(asyncio.Event()), 20)
    assert revision is not None
    with pytest.raises(EntryTaken):
        await late.move(Done(0, 1, 2, stored_at=1))
    heir = await Claim(connection, 0, "heir:2", "LOGS", presence="there").claim(NOW, revision)
    assert heir
    assert (heir.epoch, heir.released, heir.presence) == (2, False, "there")
    await ledger.release()
    assert (await stored(connection)) == heir


class Cut(Connection):
    """A connection whose broker is killed and started again behind its first subscription to a presence."""

    server: Server | None = None

    async def subscribe(self, subject: str, *rest: Any, **more: Any) -> Any:
        made = await super().subscribe(subject, *rest, **more)
        if self.server is not None and subject.startswith("logship.receiver."):
            server, self.server = self.server, None
            await asyncio.to_thread(server.kill_and_restart)
        return made


async def test_an_owner_whose_line_broke_while_it_began_can_be_asked_all_the_same(
    own_server: Server,
) -> None:
    connection = Cut([own_server.url], "tests")
    connection.server = own_server
    presence = Presence(connection, lambda: b"owner:1")

    async with asyncio.timeout(60):
        await presence.begin()

    assert presence.address
    assert not await is_gone(connection, presence.address)
    await connection.close()
