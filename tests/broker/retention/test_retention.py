"""Retention of `logbroker run`: what it purges when space is short, keeps, and reports."""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest

from broker.report import REPORT_SUBJECT, SpaceState
from broker.retention.decide import belongs_to_stream, compute_share, decide_purge
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.wire.offset import Offset
from nats_logship.wire.positions import Positions
from nats_logship.wire.streams import OFFSETS_BUCKET, POSITIONS_BUCKET, STREAM, offset_key
from tests.broker.conftest import StartBroker
from tests.receiver.partition import ours
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

ONE, OTHER = "logs.p0.web01", "logs.p1.db"
LIMIT = 1024 * 1024
CREATED = "2026-11-21T10:00:00.000Z"
LINES = b"x" * 19_999 + b"\n"


@pytest.mark.parametrize(
    ("held", "limit", "lacking", "share"),
    [
        pytest.param(890_000_000, 10**9, 0, 0.0, id="below the mark"),
        pytest.param(900_000_000, 10**9, 0, 1 / 9, id="down to the lower mark"),
        pytest.param(600_000, 10**6, 0, 0.26, id="a small limit leaves space for a round"),
        pytest.param(1000, -1, 0, 0.0, id="no limit"),
        pytest.param(1000, -1, 60, 0.06, id="what the disk misses"),
        pytest.param(10, -1, 60, 1.0, id="never more than there is"),
        pytest.param(0, -1, 60, 0.0, id="empty"),
    ],
)
def test_the_share_to_purge_depends_on_the_limit_and_the_disk(
    held: int, limit: int, lacking: int, share: float
) -> None:
    info = {"config": {"max_bytes": limit}, "state": {"bytes": held, "messages": 1}}

    assert compute_share(info, lacking) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize(
    ("share", "needs", "discard", "until", "state"),
    [
        (0.2, {}, "new", 21, SpaceState.PURGING),
        (1.0, {"partition 0": 8}, "new", 8, SpaceState.PURGING),
        (0.2, {"partition 0": 1}, "new", 0, SpaceState.HOSTS_WAIT),
        (0.2, {"partition 0": 1}, "old", 0, SpaceState.LINES_DROPPED),
    ],
)
def test_a_purge_ends_at_the_share_or_the_first_message_that_is_needed(
    share: float, needs: dict[str, int], discard: str, until: int, state: SpaceState
) -> None:
    info = {"config": {"discard": discard}, "state": {"first_seq": 1, "last_seq": 100}}

    found = decide_purge(info, share, needs)

    assert (found.until, found.state) == (until, state)
    assert found.needed_by == (() if until else ("partition 0",))


@pytest.mark.parametrize(
    "changed",
    [{"stream_created": "2020-01-01T00:00:00Z"}, {"last_time": ""}, {"moved_in": 1}, {"next": 12}],
    ids=str,
)
def test_an_offset_of_another_stream_or_not_used_yet_counts_as_none(
    changed: dict[str, Any],
) -> None:
    known = {"next": 11, "epoch": 1, "owner": "x", "stream_created": CREATED, "last_time": CREATED}
    info = {"created": CREATED, "state": {"last_seq": 10}}

    assert belongs_to_stream(Offset(**known), info)
    assert not belongs_to_stream(Offset(**{**known, **changed}), info)


class Stream:
    """The stream of a running broker, with what shippers and receivers do to it."""

    def __init__(
        self, connection: Connection, name: str = STREAM, log: Callable[[], str] = str
    ) -> None:
        self.connection, self.name, self.log = connection, name, log
        self.ends: dict[str, int] = {}

    async def publish(self, subject: str) -> int:
        """Store a message as a shipper does; return its sequence. Raises `Rejected`."""
        start = self.ends.get(subject, 0)
        self.ends[subject] = start + len(LINES)
        _, payload, headers = ours("", f"{subject}-a", start, LINES)
        return int((await self.connection.ask(subject, payload, headers))["seq"])

    async def fill(self, *subjects: str) -> list[int]:
        """Store messages of the subjects, one after the other, until the stream is full."""
        found: list[int] = []
        with suppress(Rejected):
            while True:
                found.append(await self.publish(subjects[len(found) % len(subjects)]))
        return found

    async def commit(self, partition: int, until: int, **changes: Any) -> None:
        """Write an offset as a receiver that has received all messages below `until`."""
        body = {"seq": until - 1}
        message = (await self.connection.api(f"STREAM.MSG.GET.{self.name}", body))["message"]
        stored = datetime.fromisoformat(message["time"]).isoformat(timespec="milliseconds")
        created = (await self.info())["created"]
        key = offset_key(partition)
        entry = await bucket.read(self.connection, OFFSETS_BUCKET, key)
        fields = {"stream_created": created, "last_time": stored, **changes}
        offset = Offset(until, 1, owner="test", **fields)
        revision = entry.revision if entry else 0
        await bucket.write(self.connection, OFFSETS_BUCKET, key, offset.encode(), revision)

    async def info(self) -> dict[str, Any]:
        return await self.connection.api(f"STREAM.INFO.{self.name}")

    async def state(self) -> dict[str, Any]:
        return dict((await self.info())["state"])

    async def space(self) -> dict[str, Any]:
        """Return what the broker reports of the stream's space."""
        report = json.loads((await self.connection.request(REPORT_SUBJECT)).data)
        return dict(report["retention"].get(self.name, {}))

    async def until_purged(self) -> dict[str, Any]:
        """Wait until messages were purged and there is space; return the state of the stream."""
        await self.until("purged", lambda space: space["purged_messages"] > 0)
        await self.until("space", lambda space: space["state"] == "ok")
        return dict((await self.info())["state"])

    async def until(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the broker's report of the stream's space fulfils a condition."""
        deadline = time.monotonic() + 30
        while not holds(space := await self.space()):
            assert time.monotonic() < deadline, f"{what}: {space}"
            await asyncio.sleep(0.05)
        return space


@pytest.fixture
async def stream(start_broker: StartBroker) -> AsyncIterator[Stream]:
    broker = start_broker("--partitions", "2", "--max-bytes", str(LIMIT))
    connection = Connection([broker.ready()["server"]], "tests")
    yield Stream(connection, log=broker.read_log)
    await connection.close()


def is_waiting(space: dict[str, Any]) -> bool:
    return space.get("state") == "hosts wait"


async def test_received_messages_are_purged_down_to_the_low_water_mark(stream: Stream) -> None:
    """The oldest are purged first, after their hosts' snapshots were completed."""
    await stream.connection.ask(OTHER, b"a plain client's\n")
    there = await stream.fill(ONE)
    await stream.commit(0, there[-1] + 1)
    await stream.commit(1, 2)

    state = await stream.until_purged()

    first = state["first_seq"]
    assert state["last_seq"] == there[-1]
    assert state["messages"] == there[-1] + 1 - first
    # so small a limit always leaves space for a round
    assert 0.40 < state["bytes"] / LIMIT < 0.5
    entry = await bucket.read(stream.connection, POSITIONS_BUCKET, "web01")
    assert entry is not None
    positions = Positions.decode(entry.value)
    assert positions.covered["LOGS"].sequence == first - 1
    (cursor,) = positions.files.values()
    assert cursor.offset == (first - there[0]) * len(LINES)
    assert await bucket.read(stream.connection, POSITIONS_BUCKET, "db") is None


async def test_messages_are_kept_until_their_receiver_has_committed_them(stream: Stream) -> None:
    there = await stream.fill(ONE, OTHER)
    await stream.commit(0, there[-1] + 1)

    await stream.until("partition 1", lambda space: space.get("needed_by") == ["partition 1"])
    assert (await stream.state())["first_seq"] == there[1]
    more = await stream.fill(ONE)  # until the broker refuses the next
    assert (await stream.state())["first_seq"] == there[1]

    await stream.commit(1, there[-1] + 1)
    await stream.commit(0, more[-1] + 1)
    await stream.until("hosts go on", lambda space: space["state"] == "ok")
    assert await stream.publish(ONE) > there[-1]


async def test_a_stream_that_discards_old_reports_that_it_drops_lines(stream: Stream) -> None:
    there = await stream.fill(ONE)
    config = (await stream.info())["config"] | {"discard": "old"}
    await stream.connection.api(f"STREAM.UPDATE.{STREAM}", config)

    dropped = SpaceState.LINES_DROPPED
    space = await stream.until("dropping", lambda space: space.get("state") == dropped)
    await stream.publish(ONE)

    assert space.get("needed_by") == ["partition 0"]
    assert (await stream.state())["first_seq"] == there[0] + 1


@pytest.mark.parametrize("name", ["audit", "shipper-audit"])
async def test_a_durable_consumer_of_others_keeps_what_it_has_not_acknowledged(
    stream: Stream, name: str
) -> None:
    body = {"stream_name": STREAM, "config": {"durable_name": name, "ack_policy": "explicit"}}
    await stream.connection.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", body)
    there = await stream.fill(ONE)
    await stream.commit(0, there[-1] + 1)

    await stream.until("the audit", lambda space: space.get("needed_by") == [f"consumer {name}"])
    assert (await stream.state())["first_seq"] == there[0]

    await stream.connection.api(f"CONSUMER.DELETE.{STREAM}.{name}")
    await stream.until("hosts go on", lambda space: space["state"] == "ok")


async def test_an_offset_of_sequences_that_were_assigned_again_purges_nothing(
    stream: Stream,
) -> None:
    there = await stream.fill(ONE)
    await stream.commit(0, there[-1] + 1, last_time="2020-01-01T00:00:00.000Z")

    await stream.until("hosts wait", is_waiting)

    assert (await stream.state())["messages"] == len(there)


async def test_nothing_is_purged_while_snapshots_cannot_be_written(stream: Stream) -> None:
    snapshots = Stream(stream.connection, f"KV_{POSITIONS_BUCKET}")
    config = (await snapshots.info())["config"]
    call = f"STREAM.UPDATE.{snapshots.name}"
    await stream.connection.api(call, {**config, "max_bytes": 1, "discard": "new"})
    there = await stream.fill(ONE)
    await stream.commit(0, there[-1] + 1)

    tries_again = lambda: "cannot check the space of stream LOGS" in stream.log()  # noqa: E731
    await asyncio.to_thread(wait_until, "it was tried twice", tries_again, 30)
    assert (await stream.state())["first_seq"] == 1
    await stream.connection.api(call, config)
    await stream.until_purged()
    assert await bucket.read(stream.connection, POSITIONS_BUCKET, "web01") is not None


async def test_a_host_whose_snapshot_is_too_large_keeps_nothing_from_being_purged(
    stream: Stream,
) -> None:
    most = 8 * 1024 * 1024
    noise = (
        random.Random(1).randbytes(most // 2).hex() + random.Random(2).randbytes(most // 2).hex()
    )
    value, length = b"", most
    while not most - 50_000 < len(value) < most - 1_000:
        value = Positions(version=noise[:length]).encode()
        length = length * (most - 25_000) // len(value)
    await bucket.write(stream.connection, POSITIONS_BUCKET, "web01", value, 0)
    there = await stream.fill(ONE)
    await stream.commit(0, there[-1] + 1)

    await stream.until_purged()

    assert "cannot complete the snapshot of web01: 8.0 MiB are too large" in stream.log()


async def test_a_full_stream_does_not_keep_another_stream_from_being_purged(
    start_broker: StartBroker,
) -> None:
    options = ("--partitions", "2", "--streams", "2", "--max-bytes", str(2 * LIMIT))
    connection = Connection([start_broker(*options).ready()["server"]], "tests")
    one, other = Stream(connection, "LOGS_0"), Stream(connection, "LOGS_1")
    (*_, last), _ = await one.fill(ONE), await other.fill(OTHER)
    await one.commit(0, last + 1)

    await other.until("hosts wait", is_waiting)
    await one.until("purged", lambda space: space["purged_messages"] > 0)
    assert (await one.state())["first_seq"] > 1
    assert (await other.state())["first_seq"] == 1
    await connection.close()
