"""A running receiver under whose hands stream, bucket or broker go: it says so, harms nothing, and ends when told to."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.app.exits import FencedError
from broker.topology import Topology
from broker.wire.streams import OFFSETS_BUCKET, STREAM
from receiver.consume import task
from receiver.consume.claim import Claim, moved, stream_state
from receiver.storage.disk import exclusive_lock
from tests.conftest import Server, apply_topology
from tests.receiver.driver.test_follower import NOW, Loop, lines
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    return Partition(logs_url, tmp_path)


async def said(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(20):
        while words not in caplog.text:  # noqa: ASYNC110 - what another task says
            await asyncio.sleep(0.02)


async def make_stream_anew(loop: Loop) -> None:
    config = (await loop.connection.api(f"STREAM.INFO.{STREAM}"))["config"]
    await loop.connection.api(f"STREAM.DELETE.{STREAM}")
    await loop.connection.api(f"STREAM.CREATE.{STREAM}", config)


async def test_who_is_blocked_by_a_stream_made_anew_ends_when_somebody_resets_the_offset(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    async with Loop(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        await make_stream_anew(loop)
        await said(caplog, "made anew")

        offset = await asyncio.to_thread(partition.offset)
        stream = await stream_state(loop.connection, "LOGS")
        by_hand = moved(offset, stream, 1, "root by hand", "")
        await loop.connection.ask("$KV.LOGS_OFFSETS.p0", by_hand.encode())

        with pytest.raises(FencedError, match="root by hand"):
            await loop.ends()


@pytest.mark.parametrize("is_held", [True, False], ids=["lock", "output"])
async def test_whose_tasks_never_come_to_the_entry_ends_when_somebody_has_taken_over(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, *, is_held: bool
) -> None:
    monkeypatch.setattr(task, "_LOCK_PATIENCE", 0.1)
    async with Loop(partition, often=True) as older:
        await lines(partition, b"1")
        await older.has(b"1\n")
        lock = partition.destination.state / "p0.lock"
        with exclusive_lock(lock, 20.0) if is_held else unreachable(partition):
            await Claim(older.connection, 0, "newer", "LOGS").claim(NOW)
            await lines(partition, b"2")
            with pytest.raises(
                FencedError, match=r"newer has taken it over|belongs to newer by now"
            ):
                await older.ends()


@contextmanager
def unreachable(partition: Partition) -> Iterator[None]:
    away = partition.output.with_name("away")
    partition.output.rename(away)
    partition.output.write_bytes(b"a file where the folder should be")
    yield
    partition.output.unlink()
    away.rename(partition.output)


async def test_a_bucket_deleted_in_mid_run_is_told_and_once_made_again_ends_the_receiver(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = Topology(partitions=2).streams()[1]
    assert bucket["name"] == f"KV_{OFFSETS_BUCKET}"
    async with Loop(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        await loop.connection.api(f"STREAM.DELETE.{bucket['name']}")
        await lines(partition, b"2")
        await said(caplog, "logbroker apply")
        await loop.connection.api(f"STREAM.CREATE.{bucket['name']}", bucket)

        with pytest.raises(FencedError, match=r"deleted its offset|nobody"):
            await loop.ends()


async def test_told_to_stop_while_the_broker_is_away_it_ends_soon(
    own_server: Server, tmp_path: Path
) -> None:
    await asyncio.to_thread(apply_topology, own_server.url, Topology(partitions=2))
    partition = Partition(own_server.url, tmp_path)
    async with Loop(partition, often=True) as loop:
        await lines(partition, b"1")
        await loop.has(b"1\n")
        await asyncio.to_thread(own_server.stop)

        loop.stop.set()
        async with asyncio.timeout(9.5):  # all of a program's end has ten
            await asyncio.shield(loop.running)
            await loop.follower.close()
