"""Backups of a real server under load, restored to another one, also after interruptions."""

import asyncio
import base64
import hashlib
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.backup.archives import BUCKETS, Backup, back_up, check_archive
from broker.backup.restore import find_streams, preview, restore
from broker.inspect.reader import MessageReader
from broker.inspect.streams import read_known_layout
from broker.provision.apply import apply
from broker.topology import Topology
from nats_logship.app.exits import OperatorError
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.offset import Offset
from nats_logship.wire.streams import OFFSETS_BUCKET, POSITIONS_BUCKET
from tests.conftest import Server
from tests.receiver.partition import ours

pytestmark = pytest.mark.nats

STREAMS = (*BUCKETS, "LOGS")

NOW = datetime(2026, 11, 21, 16, 45, tzinfo=UTC)


async def broker(url: str, partitions: int = 2) -> Connection:
    connection = Connection([url], "tests")
    await apply(connection, Topology(partitions=partitions))
    return connection


async def ship(connection: Connection, number: int) -> int:
    """Publish a message of one of five hosts."""
    payload = b"%d " % number + base64.b64encode(os.urandom(45_000)) + b"\n"
    _, data, headers = ours(f"host{number % 5}", "a", number * 100, payload)
    subject = f"logs.p{number % 5 % 2}.host{number % 5}"
    return int((await connection.ask(subject, data, headers))["seq"])


async def commit(connection: Connection, sequence: int) -> None:
    created = (await connection.api("STREAM.INFO.LOGS"))["created"]
    entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
    offset = Offset(sequence, 1, created, "central:1")
    revision = entry.revision if entry else 0
    await bucket.write(connection, OFFSETS_BUCKET, "p0", offset.encode(), revision)


async def digests(connection: Connection, until: int) -> dict[str, str]:
    """Return a digest of each subject's messages below a sequence, with times and headers."""
    found: defaultdict[str, hashlib._Hash] = defaultdict(hashlib.sha256)
    reader = MessageReader(connection, "LOGS", at_sequence(1))
    async for message in reader.read_all(until - 1):
        head = repr((message.sequence, message.stored_at, message.headers)).encode()
        found[message.subject].update(head + message.payload)
    return {subject: digest.hexdigest() for subject, digest in found.items()}


async def taken(connection: Connection, folder: Path) -> Backup:
    return await back_up(connection, folder, NOW)


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
async def source(fresh_url: str) -> AsyncIterator[Connection]:
    connection = await broker(fresh_url)
    yield connection
    await connection.close()


@pytest.fixture
async def target(second_url: str) -> AsyncIterator[Connection]:
    connection = await broker(second_url, partitions=3)
    yield connection
    await connection.close()


async def test_a_backup_under_load_is_restored_with_equal_content(
    source: Connection, target: Connection, tmp_path: Path
) -> None:
    keys, done = [f"web{number}" for number in range(9)], asyncio.Event()
    has_begun = asyncio.Barrier(len(keys) + 2)

    async def commit_all() -> None:
        await commit(source, await ship(source, 100) + 1)
        await has_begun.wait()
        while not done.is_set():
            await commit(source, await ship(source, 101) + 1)

    async def snapshot(key: str) -> None:
        revision = await bucket.write(source, POSITIONS_BUCKET, key, b"1", 0)
        await has_begun.wait()
        while not done.is_set():
            stored = await source.ask("logs.p0.web01", b"line\n" * 1000)
            said = b"%d" % stored["seq"]
            revision = await bucket.write(source, POSITIONS_BUCKET, key, said, revision)

    for number in range(100):
        await ship(source, number)
    await source.api("STREAM.MSG.DELETE.LOGS", {"seq": 50})
    loading = [asyncio.ensure_future(one) for one in (commit_all(), *map(snapshot, keys))]
    await has_begun.wait()
    backup = await taken(source, tmp_path)
    done.set()
    await asyncio.gather(*loading)
    for archive in backup.archives:
        check_archive(tmp_path, archive)

    await restore(target, tmp_path, backup.archives)

    logs = next(archive for archive in backup.archives if archive.stream == "LOGS")
    entry = await bucket.read(target, OFFSETS_BUCKET, "p0")
    found = (await find_streams(target, ["LOGS"]))["LOGS"]
    assert entry is not None
    assert 100 < Offset.decode(entry.value).next <= logs.until
    positions = [await bucket.read(target, POSITIONS_BUCKET, key) for key in keys]
    assert all(one and 0 < int(one.value) < logs.until for one in positions)
    assert await digests(target, logs.until) == await digests(source, logs.until)
    assert (found["state"]["last_seq"], found["state"]["consumer_count"]) == (logs.until - 1, 0)
    assert found["config"]["subjects"] == ["logs.p0.>", "logs.p1.>"]
    assert (await read_known_layout(target)).partitions == 2
    assert await ship(target, 1) == logs.until
    assert await apply(target, Topology(partitions=2)) == ()


async def test_a_backup_has_entries_that_are_written_while_it_reads_them(
    source: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subjects, call = [f"$KV.{POSITIONS_BUCKET}.web{number}" for number in range(2)], source.api

    async def write_and_call(name: str, *rest: Any, **named: Any) -> dict[str, Any]:
        if name == f"STREAM.MSG.GET.KV_{POSITIONS_BUCKET}":
            for subject in subjects:
                await source.ask(subject, b"1")
        return await call(name, *rest, **named)

    for subject in subjects:
        await source.ask(subject, b"1")
    monkeypatch.setattr(source, "api", write_and_call)
    [positions] = (
        one
        for one in (await taken(source, tmp_path)).archives
        if one.stream == f"KV_{POSITIONS_BUCKET}"
    )
    assert sorted(positions.replaced) == subjects


@pytest.mark.parametrize("share", [0.1, 0.9])
async def test_an_interrupted_restore_leaves_streams_closed_and_can_be_repeated(
    source: Connection, target: Connection, tmp_path: Path, share: float
) -> None:
    await apply(source, Topology(partitions=2, max_age=timedelta(days=7)))
    await apply(target, Topology(partitions=3, max_bytes=10**9))
    limits = {"max_age": 86_400 * 10**9, "max_bytes": 10**9, "num_replicas": 1}
    for number in range(40):
        await ship(source, number)
    backup = await taken(source, tmp_path)
    whole = (tmp_path / "LOGS.nats").read_bytes()
    (tmp_path / "LOGS.nats").write_bytes(whole[: int(len(whole) * share)])

    with pytest.raises(OperatorError, match="run the same `logbroker restore` again"):
        await restore(target, tmp_path, backup.archives)

    half = await find_streams(target, STREAMS)
    assert ("LOGS" in half) == (share > 0.5)
    with pytest.raises(Rejected):
        await ship(target, 1)
    assert await apply(target, Topology(partitions=3)) == ()
    assert ("LOGS" in await find_streams(target, STREAMS)) == ("LOGS" in half)
    assert preview(backup.archives, half) == {}
    with pytest.raises(OperatorError, match="is missing or partly restored"):
        await taken(target, made(tmp_path / "again"))
    (tmp_path / "LOGS.nats").write_bytes(whole)
    await restore(target, tmp_path, backup.archives)
    config = (await find_streams(target, STREAMS))["LOGS"]["config"]
    assert config.items() >= limits.items()
    assert not {name for name in config["metadata"] if "restoring" in name}
    assert await apply(target, Topology(partitions=2)) == ()
    assert await digests(target, 41) == await digests(source, 41)


async def test_a_stopped_server_ends_an_archive_at_once(own_server: Server, tmp_path: Path) -> None:
    connection = await broker(own_server.url)
    for number in range(400):
        await ship(connection, number)
    taking = asyncio.ensure_future(taken(connection, tmp_path))
    for _ in range(100_000):
        if (tmp_path / "LOGS.nats").exists():
            break
        await asyncio.sleep(0)
    own_server.stop()

    with pytest.raises(OperatorError, match="take the backup again"):
        await taking

    await asyncio.to_thread(own_server.start)
    again = await taken(connection, made(tmp_path / "again"))
    assert sum(one.size for one in again.archives) > 400 * 40_000
    await connection.close()
