"""A partition's entry in KV: claimed, fenced by later epochs, and read from replicas that lag."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from nats_logship.app.exits import FencedError
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState
from nats_logship.wire.offset import Offset
from nats_logship.wire.restored import Ancestor
from nats_logship.wire.streams import OFFSETS_BUCKET
from receiver.consume.assignment import Done
from receiver.consume.claim import (
    Claim,
    StreamMismatch,
    StreamStates,
    adapt_to_restored,
    find_first_sequence,
)
from receiver.consume.offset_entry import EntryTaken, OffsetEntry, StaleRead, confirm_entry
from receiver.offsets_cli import carry_out, propose
from receiver.storage.damage import Damaged
from tests.lagging import Crowded, Lagging

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
FIRST = Done(0, 1, 5, lines=3, size=30, stored_at=10**18)
SECOND = Done(0, 5, 9, lines=4, size=40, stored_at=10**18)
ENTRY = f"KV_{OFFSETS_BUCKET}.$KV.{OFFSETS_BUCKET}.p0"


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Lagging]:
    made = Lagging([logs_url], "tests")
    yield made
    await made.close()


async def test_one_of_simultaneous_claims_is_the_owners(connection: Lagging) -> None:
    receivers = [Claim(connection, 0, f"r:{n}", "LOGS") for n in range(8)]

    claims = await asyncio.gather(*(one.claim(NOW) for one in receivers))
    confirmed = await asyncio.gather(*(one.confirm() for one in receivers), return_exceptions=True)

    assert sorted(claim.epoch for claim in claims if claim) == list(range(1, 9))
    assert [one.epoch for one in confirmed if isinstance(one, Offset)] == [8]
    assert sum(isinstance(one, FencedError) for one in confirmed) == 7


async def test_a_state_that_is_remembered_clears_an_offset_and_objects_to_none(
    connection: Lagging,
) -> None:
    states = StreamStates(connection)
    claim = Claim(connection, 0, "r:1", "LOGS", states=states)
    await claim.claim(NOW)
    await claim.check_stream()

    for _ in range(8):
        await connection.ask("logs.p0.web01", b"x")
    claim.advance(Done(0, 1, 9))
    await claim.check_stream()  # the stream ended before this offset when it was seen

    await connection.api("STREAM.DELETE.LOGS")
    await claim.check_stream()
    states.most_age = 0.0
    with pytest.raises(Rejected):
        await claim.check_stream()


async def test_a_silent_partition_reports_what_was_removed_between_two_checks(
    connection: Lagging, caplog: pytest.LogCaptureFixture
) -> None:
    claim = Claim(connection, 0, "r:1", "LOGS")
    await claim.claim(NOW)
    for _ in range(4):
        await connection.ask("logs.p0.web01", b"x")
    await claim.check_stream()
    claim.note_silence()
    assert not caplog.text
    await connection.ask("logs.p0.web01", b"x")
    await connection.api("STREAM.PURGE.LOGS")
    for _ in range(2):
        await claim.check_stream()
        claim.note_silence()
    assert caplog.text.count("from sequence 5 to 5, if there were any, were removed") == 1

    await Claim(connection, 0, "r:2", "LOGS").claim(NOW)
    assert caplog.text.count("from sequence 1 to 5, if there were any, were removed") == 1


async def claimed(connection: Connection, owner: str = "a:1") -> OffsetEntry:
    for _ in range(8):
        await connection.ask("logs.p0.web01", b"x")
    await Claim(connection, 0, owner, "LOGS").claim(NOW)
    entry = OffsetEntry(connection, 0, lambda: NOW)
    await entry.read()
    return entry


async def delete_entry(connection: Connection) -> None:
    await connection.ask(f"$KV.{OFFSETS_BUCKET}.p0", b"", {"KV-Operation": "DEL"})


@pytest.mark.parametrize("by_hand", [True, False])
async def test_a_deleted_entry_begins_a_new_epoch(connection: Lagging, by_hand: bool) -> None:
    owner = Claim(connection, 0, "a:1", "LOGS")
    await owner.claim(NOW)
    task = OffsetEntry(connection, 0, lambda: NOW)
    await task.read()
    await delete_entry(connection)

    if by_hand:
        await carry_out(connection, await propose(connection, "LOGS", 0, "earliest", NOW))
    else:
        await Claim(connection, 0, "b:2", "LOGS").claim(NOW)

    with pytest.raises(EntryTaken) as taken:
        await task.commit(FIRST)
    assert taken.value.found
    assert (taken.value.found.epoch > 1, taken.value.found.is_moved) == (True, by_hand)
    with pytest.raises(FencedError):
        await owner.confirm()


@pytest.mark.parametrize("before", ["nothing", "an older epoch", "an older batch"])
async def test_a_replica_that_lags_is_not_believed(connection: Lagging, before: str) -> None:
    if before == "an older epoch":
        await claimed(connection, "before:0")
    if before == "an older batch":
        entry = await claimed(connection)
        await connection.remember(ENTRY)
        await entry.commit(FIRST)
    else:
        await connection.remember(ENTRY)
        entry = await claimed(connection)
    offset = entry.offset
    assert offset
    entry = OffsetEntry(connection, 0, lambda: NOW)

    connection.lags = 1
    with pytest.raises(StaleRead):  # and so is asked again
        await entry.read(offset.epoch, offset.next)

    assert await entry.read(offset.epoch, offset.next) == offset


async def test_the_newest_entry_is_confirmed_without_a_write(logs_url: str) -> None:
    connection = Crowded([logs_url], "tests")
    key = (connection, OFFSETS_BUCKET, "p0")
    await confirm_entry(*key, None)
    await bucket.write(*key, b"one", 0)
    entry = await bucket.read(*key)
    for connection.left in (0, 5):  # also while others write
        await confirm_entry(*key, entry)

    assert await bucket.read(*key) == entry
    await connection.ask(f"$KV.{OFFSETS_BUCKET}.p0", b"", {"KV-Operation": "DEL"})
    await confirm_entry(*key, None)
    await connection.close()


async def test_a_claim_is_not_refused_because_of_a_stale_entry(connection: Lagging) -> None:
    revision = await bucket.write(connection, OFFSETS_BUCKET, "p0", b"damaged", 0)
    await connection.remember(ENTRY)
    made = str((await connection.api("STREAM.INFO.LOGS"))["created"])
    offset = Offset(3, 7, made, "b:2")
    await bucket.write(connection, OFFSETS_BUCKET, "p0", offset.encode(), revision)

    connection.lags = 1
    with pytest.raises(StaleRead):  # and so is made again
        await Claim(connection, 0, "a:1", "LOGS").claim(NOW)

    found = (await claimed(connection)).offset
    assert found
    assert found.epoch == 8


async def test_an_owner_does_not_end_because_a_replica_lags(connection: Lagging) -> None:
    await connection.remember(ENTRY)
    owner = Claim(connection, 0, "a:1", "LOGS")
    await owner.claim(NOW)

    connection.lags = 1
    with pytest.raises(StaleRead):
        await owner.confirm()

    await owner.confirm()
    await delete_entry(connection)
    with pytest.raises(Damaged):
        await owner.confirm()


CREATED = "2026-11-20T00:00:00Z"


def offset_at(sequence: int, created: str = CREATED) -> Offset:
    return Offset(sequence, 3, created, "old:1", 10, 1000, "before", "then")


def test_a_stream_that_went_back_is_refused() -> None:
    with pytest.raises(StreamMismatch, match=r"rewound.*offsets set --partition 4 --to earliest"):
        find_first_sequence(offset_at(12), StreamState(CREATED, 1, 10), 4)


RESTORED = StreamState("now", 1, 10, ancestors=(Ancestor("older", 5), Ancestor(CREATED, 8)))


@pytest.mark.parametrize(
    ("found", "next_", "by_hand"),
    [
        pytest.param(offset_at(6), 6, True, id="in the backup"),
        pytest.param(offset_at(6, "older"), 5, True, id="of what was backed up before"),
        pytest.param(offset_at(9), 8, True, id="beyond the backup"),
        pytest.param(offset_at(6, "now"), 6, False, id="claimed since"),
        pytest.param(offset_at(6, "other"), 6, False, id="of another stream"),
    ],
)
def test_an_offset_follows_a_restored_stream(found: Offset, next_: int, by_hand: bool) -> None:
    carried = adapt_to_restored(found, RESTORED, "now")

    assert carried
    assert (carried.next, carried.is_moved) == (next_, by_hand)
