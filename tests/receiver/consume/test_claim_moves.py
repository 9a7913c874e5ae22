"""A partition's entry in KV as a task moves it: once per batch, whatever happens to the connection; by one writer only."""

from datetime import UTC, datetime

import pytest

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim, EntryTaken, OffsetEntry
from tests.receiver.flaky import Flaky

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FIRST = Done(0, 1, 5, lines=3, size=30, stored_at=10**18)
SECOND = Done(0, 5, 9, lines=4, size=40, stored_at=10**18)


async def stored(connection: Connection) -> Offset | None:
    found = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    return Offset.decode(found.value) if found else None


async def claimed(connection: Connection, owner: str = "a:1") -> OffsetEntry:
    for _ in range(8):
        await connection.ask("logs.p0.web01", b"x")
    await Claim(connection, 0, owner, "LOGS").claim(NOW)
    entry = OffsetEntry(connection, 0, lambda: NOW)
    await entry.read()
    return entry


@pytest.mark.parametrize("when", ["stored", "not stored"])
async def test_a_move_in_doubt_is_seen_by_the_next_session(logs_url: str, when: str) -> None:
    connection = Flaky([logs_url], "tests")
    entry = await claimed(connection)
    await entry.move(FIRST)

    connection.breaks = when
    with pytest.raises(ConnectionLost):
        await entry.move(SECOND)

    again = OffsetEntry(connection, 0, lambda: NOW)
    offset = await again.read()
    assert offset is not None
    assert offset.next == (9 if when == "stored" else 5)
    if when != "stored":
        await again.move(SECOND)
        offset = await stored(connection)
        assert offset is not None
    assert (offset.lines, offset.size, offset.owner) == (7, 70, "a:1")
    assert offset.last_time == "2001-09-09T01:46:40.000Z"
    await connection.close()


async def test_a_later_owner_is_found_and_its_entry_stays(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    entry = await claimed(connection)
    await entry.move(FIRST)
    later = await Claim(connection, 0, "b:2", "LOGS").claim(NOW)

    with pytest.raises(EntryTaken) as taken:
        await entry.move(SECOND)

    assert taken.value.found == later == await stored(connection)
    await connection.close()


async def test_a_deleted_entry_is_not_written_again(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    entry = await claimed(connection)
    await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})

    with pytest.raises(EntryTaken):
        await entry.move(FIRST)

    assert await stored(connection) is None
    await connection.close()
