"""A receiver beside the owner of its partitions: a standby waits, --once ends or takes over."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from nats_logship.app.exits import Exit, OperatorError
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.streams import StreamLayout
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim
from receiver.consume.offset_entry import EntryTaken, OffsetEntry
from receiver.driver.partitions import require_unused
from receiver.driver.standby import ReceiverPresence, is_gone, wait_until_free
from receiver.meter import Meter
from tests.receiver.supervised import RequestCounter
from tests.receiver.threaded import Receiver

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def waiting(
    connection: Connection, silence: float = 0.0, owner: str = "standby:3", presence: str = ""
) -> "asyncio.Future[int]":
    """Return a standby, which ends with the revision at which the partition is free."""
    claim = Claim(connection, 0, owner, "LOGS", presence=presence)
    return asyncio.ensure_future(wait_until_free(claim, Meter(lambda: 0).expect(0), silence))


async def own(connection: Connection) -> tuple[ReceiverPresence, Claim]:
    present = ReceiverPresence(connection, lambda _: b"")
    await present.start()
    claim = Claim(connection, 0, "owner:1", "LOGS", presence=present.address)
    await claim.claim(NOW)
    return present, claim


async def test_a_mute_or_busy_owner_is_not_gone(connection: Connection, logs_url: str) -> None:
    await Claim(connection, 0, "mute:1", "LOGS").claim(NOW)
    asked, standby = RequestCounter(connection), waiting(connection)
    await asked.wait(3)
    assert not standby.done()
    standby.cancel()

    await Claim(connection, 0, "owner:1", "LOGS", presence="nobody-there").claim(NOW)
    mine = OffsetEntry(connection, 0, lambda: NOW)
    await mine.read()
    asking = Connection([logs_url], "standby")
    request, commits, enough = asking.request, count(1), asyncio.Event()

    async def commit_and_request(subject: str, *rest: Any, **more: Any) -> Message:
        if subject == "logship.receiver.nobody-there":
            next_ = next(commits)
            await mine.commit(Done(0, next_, next_ + 1, stored_at=1))
            if next_ > 3:
                enough.set()
        return await request(subject, *rest, **more)

    asking.request = commit_and_request  # type: ignore[method-assign]
    standby = waiting(asking)
    await asyncio.wait_for(enough.wait(), 20)
    assert not standby.done()
    standby.cancel()
    await asking.close()


async def test_an_owner_answers_on_a_new_connection(connection: Connection, logs_url: str) -> None:
    theirs = Connection([logs_url], "owner")
    present, _ = await own(theirs)
    lasting = asyncio.ensure_future(present.keep_answering())
    client = await theirs.client()

    await client.close()

    async with asyncio.timeout(10):
        while await is_gone(connection, present.address):  # noqa: ASYNC110 - until it answers
            await asyncio.sleep(0.05)
    lasting.cancel()
    await theirs.close()


async def test_a_released_partition_is_free_and_its_tasks_fenced(connection: Connection) -> None:
    _, claim = await own(connection)
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


async def test_a_standby_accepts_its_claim_whose_answer_was_lost(connection: Connection) -> None:
    _, lost = await own(connection)
    again = Claim(connection, 0, "owner:1", "LOGS", presence=lost.presence)

    async with asyncio.timeout(5):
        revision = await waiting(connection, 60.0, again.owner, again.presence)

    assert await again.claim(NOW, revision)


@pytest.fixture
async def owner(logs_url: str, tmp_path: Path) -> AsyncIterator[Receiver]:
    """Return a running receiver, which has received a line of each partition."""
    async with Receiver(logs_url, tmp_path, name="central:7") as owner:
        await owner.send(b"1\n")
        await owner.until(lambda: has_both(owner, b"1\n"))
        yield owner


def has_both(receiver: Receiver, lines: bytes) -> bool:
    return receiver.has(0, lines)() and receiver.has(1, lines)()


async def test_once_takes_nothing_from_a_running_receiver(
    owner: Receiver, logs_url: str, tmp_path: Path
) -> None:
    once = Receiver(logs_url, tmp_path / "once", once=True)
    reason = r"partition 0 is received by central:7.*--take-over"
    with pytest.raises(OperatorError, match=reason) as raised:
        await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
    assert raised.value.code is Exit.FAILED
    async with once:
        with pytest.raises(OperatorError, match=r"received by central:7.*--take-over"):
            await once.ends()

    await owner.send(b"2\n")
    await owner.until(lambda: has_both(owner, b"1\n2\n"))


async def test_once_takes_over_if_asked(owner: Receiver, logs_url: str, tmp_path: Path) -> None:
    once = Receiver(logs_url, tmp_path, once=True, take_over=True, name="once:8")
    await require_unused(once.settings, once.connection, StreamLayout(2), range(2))
    await once.send(b"2\n")
    async with once:
        await once.ends()
    with pytest.raises(OperatorError, match="once:8"):
        await owner.ends()

    assert has_both(owner, b"1\n2\n")


async def test_once_receives_after_a_kill(owner: Receiver, logs_url: str, tmp_path: Path) -> None:
    owner.running.cancel()  # it releases nothing
    await asyncio.wait({owner.running})
    await owner.connection.close()
    once = Receiver(logs_url, tmp_path, once=True, name="once:8")
    await once.send(b"2\n")
    async with once:
        await once.ends()

    assert has_both(once, b"1\n2\n")
