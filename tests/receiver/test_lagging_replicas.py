"""A replica of the broker that lags answers with what was: that costs a receiver a question more, and never its partition."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from broker.app.exits import FencedError
from broker.client import bucket
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Done
from receiver.consume.claim import Claim, EntryTaken, OffsetEntry
from tests.lagging import Lagging
from tests.receiver.flaky import Flaky

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FIRST = Done(0, 1, 5, lines=3, size=30, stored_at=10**18)
SECOND = Done(0, 5, 9, lines=4, size=40, stored_at=10**18)
ENTRY = f"KV_{OFFSETS_BUCKET}.$KV.{OFFSETS_BUCKET}.p0"


class Replica(Lagging, Flaky):
    """One that lags, on a line that breaks."""


@pytest.fixture
async def replica(logs_url: str) -> AsyncIterator[Replica]:
    connection = Replica([logs_url], "tests")
    for _ in range(9):
        await connection.ask("logs.p0.web01", b"x\n")
    yield connection
    await connection.close()


async def claimed(replica: Replica, owner: str = "a:1") -> Offset:
    offset = await Claim(replica, 0, owner, "LOGS").claim(NOW)
    assert offset is not None
    return offset


async def moved(replica: Replica, done: Done) -> OffsetEntry:
    entry = OffsetEntry(replica, 0, lambda: NOW)
    await entry.read()
    await entry.move(done)
    return entry


@pytest.mark.parametrize("before", ["nothing", "an older epoch", "an older batch"])
async def test_a_replica_that_lags_is_not_believed(replica: Replica, before: str) -> None:
    if before != "nothing":
        offset = await claimed(replica, "before:0")
    if before != "an older batch":
        await replica.remember(ENTRY)
        offset = await claimed(replica)
    else:
        await replica.remember(ENTRY)
        offset = (await moved(replica, FIRST)).offset
    entry = OffsetEntry(replica, 0, lambda: NOW)

    replica.lags = 1
    with pytest.raises(bucket.Behind):  # and so is asked again
        await entry.read(offset.epoch, offset.next)

    assert await entry.read(offset.epoch, offset.next) == offset


async def test_an_entry_that_went_back_indeed_ends_a_move(replica: Replica) -> None:
    """Somebody has removed the bucket and made it anew: its revisions begin again."""
    offset = await claimed(replica)
    await moved(replica, FIRST)
    entry = OffsetEntry(replica, 0, lambda: NOW)
    await entry.read()
    await replica.api(f"STREAM.PURGE.KV_{OFFSETS_BUCKET}", {"filter": f"$KV.{OFFSETS_BUCKET}.p0"})

    with pytest.raises(EntryTaken):
        await entry.move(replace(SECOND, first=offset.next))


async def test_a_claim_is_not_refused_for_what_an_entry_was(replica: Replica) -> None:
    revision = await bucket.write(replica, OFFSETS_BUCKET, "p0", b"damaged", 0)
    await replica.remember(ENTRY)
    made = str((await replica.api("STREAM.INFO.LOGS"))["created"])
    await bucket.write(replica, OFFSETS_BUCKET, "p0", Offset(3, 7, made, "b:2").encode(), revision)

    replica.lags = 1
    with pytest.raises(bucket.Behind):  # and so is made again
        await claimed(replica)

    assert (await claimed(replica)).epoch == 8


async def test_an_owner_does_not_end_since_a_replica_has_not_seen_it_yet(replica: Replica) -> None:
    await replica.remember(ENTRY)
    ledger = Claim(replica, 0, "a:1", "LOGS")
    await ledger.claim(NOW)

    replica.lags = 1
    with pytest.raises(bucket.Behind):
        await ledger.confirm()

    await ledger.confirm()
    await replica.ask(f"$KV.{OFFSETS_BUCKET}.p0", b"", {"KV-Operation": "DEL"})
    with pytest.raises(FencedError):
        await ledger.confirm()
