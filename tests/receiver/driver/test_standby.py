"""A standby waits until the owner is gone, or has released the partition."""

import asyncio
from datetime import UTC, datetime

import pytest

from nats_logship.client.connection import Connection
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim
from receiver.consume.offset_entry import EntryTaken, OffsetEntry
from receiver.driver.presence import ReceiverPresence, is_gone
from receiver.driver.standby import wait_until_free
from receiver.meter import Meter

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SILENCE = 0.5


def waiting(connection: Connection, silence: float = SILENCE) -> "asyncio.Future[int]":
    """Return a standby, which ends with the revision at which the partition is free."""
    claim, meter = Claim(connection, 0, "standby:3", "LOGS"), Meter(lambda: 0).expect(0)
    return asyncio.ensure_future(wait_until_free(claim, meter, silence))


async def owner(connection: Connection) -> tuple[ReceiverPresence, Claim]:
    present = ReceiverPresence(connection, lambda _: b"")
    await present.start()
    claim = Claim(connection, 0, "owner:1", "LOGS", presence=present.address)
    await claim.claim(NOW)
    return present, claim


async def waits(connection: Connection) -> bool:
    """Return whether a standby still waits after a time."""
    standby = waiting(connection)
    done, _ = await asyncio.wait({standby}, timeout=3 * SILENCE)
    standby.cancel()
    return not done


async def test_an_owner_that_commits_or_has_no_address_is_not_gone(connection: Connection) -> None:
    await Claim(connection, 0, "mute:1", "LOGS").claim(NOW)
    assert await waits(connection)

    gone = Claim(connection, 0, "owner:1", "LOGS", presence="nobody-there")
    await gone.claim(NOW)
    standby = waiting(connection, 1.0)
    mine = OffsetEntry(connection, 0, lambda: NOW)
    await mine.read()
    for number in range(2, 30):
        await mine.commit(Done(0, number - 1, number, stored_at=1))
        await asyncio.sleep(0.05)

    assert not standby.done()
    standby.cancel()


async def test_an_owner_answers_through_a_new_connection(
    connection: Connection, logs_url: str
) -> None:
    theirs = Connection([logs_url], "owner")
    present, _ = await owner(theirs)
    lasting = asyncio.ensure_future(present.keep_answering())
    client = await theirs.client()

    await client.close()

    for _ in range(200):
        if not (gone := await is_gone(connection, present.address)):
            break
        await asyncio.sleep(0.05)
    assert not gone
    lasting.cancel()
    await theirs.close()


async def test_a_released_partition_is_free_at_once_and_its_tasks_are_fenced(
    connection: Connection,
) -> None:
    _, claim = await owner(connection)
    late = OffsetEntry(connection, 0, lambda: NOW)
    await late.read()

    await claim.release()

    revision = await asyncio.wait_for(waiting(connection, 3600.0), 20)
    assert revision is not None
    with pytest.raises(EntryTaken):
        await late.commit(Done(0, 1, 2, stored_at=1))
    heir = await Claim(connection, 0, "heir:2", "LOGS", presence="there").claim(NOW, revision)
    assert heir
    assert (heir.epoch, heir.released, heir.presence) == (2, False, "there")
    await claim.release()
    assert await OffsetEntry(connection, 0, lambda: NOW).read() == heir


async def test_a_standby_accepts_its_own_claim_whose_answer_was_lost(
    connection: Connection,
) -> None:
    _, lost = await owner(connection)
    again = Claim(connection, 0, "owner:1", "LOGS", presence=lost.presence)

    meter = Meter(lambda: 0).expect(0)
    async with asyncio.timeout(5):
        revision = await wait_until_free(again, meter, SILENCE)

    assert revision
    assert await again.claim(NOW, revision)
