"""A partition's entry in KV: claimed once, moved once, whatever happens to the connection; lost to a later epoch only."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker import bucket
from broker.connection import Connection, ConnectionLost, Rejected
from broker.exits import ConfigurationError, FencedError
from broker.offset import Offset
from broker.topology import OFFSETS_BUCKET
from receiver.following import ledger as room
from receiver.following.ledger import Ledger
from receiver.following.offsets import StreamMismatch
from receiver.outcome import Done

pytestmark = pytest.mark.nats

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Flaky(Connection):
    """A connection that breaks once, before or after the answer to a write has come in."""

    breaks: str | None = None
    error: Exception = ConnectionLost("cut")

    async def ask(self, subject: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if not subject.startswith("$KV.") or self.breaks is None:
            return await super().ask(subject, *rest, **more)
        when, self.breaks = self.breaks, None
        if when == "stored":
            await super().ask(subject, *rest, **more)
        raise self.error


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_PAUSE", 0.01)


async def stored(connection: Connection) -> Offset:
    entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    assert entry is not None
    return Offset.decode(entry.value)


async def test_each_claim_is_an_epoch_of_its_own(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")

    first = await Ledger(connection, 0, "a:1").claim(NOW)
    second = await Ledger(connection, 0, "b:2").claim(NOW)

    assert (first.next, first.epoch, second.epoch, second.owner) == (1, 1, 2, "b:2")
    assert await stored(connection) == second
    await connection.close()


async def test_of_claims_at_once_every_one_has_an_epoch_and_one_is_the_owner(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    ledgers = [Ledger(connection, 0, f"r:{n}") for n in range(8)]

    claims = await asyncio.gather(*(ledger.claim(NOW) for ledger in ledgers))

    assert sorted(claim.epoch for claim in claims) == list(range(1, 9))
    outcomes = await asyncio.gather(
        *(ledger.commit(Done(0, 1, 5, stored_at=1), NOW) for ledger in ledgers),
        return_exceptions=True,
    )
    winners = [o for o in outcomes if isinstance(o, Offset)]
    assert [w.epoch for w in winners] == [8]
    assert sum(isinstance(o, FencedError) for o in outcomes) == 7
    await connection.close()


@pytest.mark.parametrize("when", ["stored", "not stored"])
@pytest.mark.parametrize("error", [ConnectionLost("cut"), Rejected(503, 10077, "no room")])
async def test_a_commit_in_doubt_is_made_once(logs_url: str, when: str, error: Exception) -> None:
    connection = Flaky([logs_url], "tests")
    connection.error = error
    ledger = Ledger(connection, 0, "a:1")
    await ledger.claim(NOW)

    connection.breaks = when
    await ledger.commit(Done(0, 1, 5, lines=3, size=30, stored_at=10**18), NOW)
    await ledger.commit(Done(0, 5, 9, lines=4, size=40, stored_at=10**18), NOW + timedelta(1))

    offset = await stored(connection)
    assert (offset.next, offset.lines, offset.size) == (9, 7, 70)
    assert offset.last_time == "2001-09-09T01:46:40.000Z"
    await connection.close()


@pytest.mark.parametrize("when", ["stored", "not stored"])
async def test_a_claim_in_doubt_is_claimed_again(logs_url: str, when: str) -> None:
    connection = Flaky([logs_url], "tests")
    ledger = Ledger(connection, 0, "a:1")
    connection.breaks = when

    with pytest.raises(ConnectionLost):
        await ledger.claim(NOW)
    offset = await ledger.claim(NOW)

    assert offset == await stored(connection)
    await ledger.commit(Done(0, 1, 2, stored_at=1), NOW)
    await connection.close()


@pytest.mark.parametrize("when", [None, "not stored"])
async def test_a_later_epoch_fences_and_its_entry_stays(logs_url: str, when: str | None) -> None:
    connection, other = Flaky([logs_url], "tests"), Connection([logs_url], "other")
    ledger = Ledger(connection, 0, "a:1")
    await ledger.claim(NOW)
    later = await Ledger(other, 0, "b:2").claim(NOW)
    connection.breaks = when

    with pytest.raises(FencedError, match="b:2"):
        await ledger.commit(Done(0, 1, 5, stored_at=1), NOW)

    assert await stored(connection) == later
    await connection.close()
    await other.close()


async def test_a_deleted_offset_fences(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    ledger = Ledger(connection, 0, "a:1")
    await ledger.claim(NOW)
    await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})

    with pytest.raises(FencedError, match="deleted"):
        await ledger.commit(Done(0, 1, 5, stored_at=1), NOW)
    await connection.close()


async def test_after_a_deleted_offset_a_claim_begins_with_what_the_stream_holds(
    logs_url: str,
) -> None:
    connection = Connection([logs_url], "tests")
    await Ledger(connection, 0, "a:1").claim(NOW)
    for _ in range(3):
        await connection.ask("logs.p0.web01", b"x")
    await connection.api("STREAM.PURGE.LOGS", {"seq": 3})
    await connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})

    offset = await Ledger(connection, 0, "b:1").claim(NOW)

    assert (offset.next, offset.epoch) == (3, 1)
    await connection.close()


@pytest.mark.parametrize("entry", [b"junk", b'{"version":1}', b'{"version":1,"next":"1"}', b"null"])
async def test_an_unreadable_entry_is_said_so_and_left_alone(logs_url: str, entry: bytes) -> None:
    connection = Connection([logs_url], "tests")
    await connection.ask("$KV.LOGS_OFFSETS.p0", entry)

    with pytest.raises(ConfigurationError, match="older revisions") as raised:
        await Ledger(connection, 0, "a:1").claim(NOW)

    assert "\n" not in str(raised.value)
    found = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    assert found
    assert found.value == entry
    await connection.close()


async def test_what_retention_took_while_nobody_received_is_said(
    logs_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Connection([logs_url], "tests")
    await Ledger(connection, 0, "a:1").claim(NOW)
    await connection.ask("logs.p0.web01", b"x")
    await connection.ask("logs.p0.web01", b"x")
    await connection.api("STREAM.PURGE.LOGS", {"seq": 2})

    offset = await Ledger(connection, 0, "a:1").claim(NOW)

    assert offset.next == 1
    assert "begins at sequence 2" in caplog.text
    await connection.close()


async def test_a_stream_that_was_made_anew_is_refused(logs_url: str) -> None:
    connection = Connection([logs_url], "tests")
    await Ledger(connection, 0, "a:1").claim(NOW)
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)

    with pytest.raises(StreamMismatch, match="made anew"):
        await Ledger(connection, 0, "a:1").claim(NOW)
    await connection.close()
