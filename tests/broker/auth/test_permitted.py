"""Every kind of credential can do what it needs, at a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.inspect.reader import MessageReader
from nats_logship.app.exits import OperatorError
from nats_logship.client import bucket
from nats_logship.client.answer import Denied
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.interval import INTERVAL_SUBJECT
from nats_logship.wire.pause import PAUSE_SUBJECT
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    PARTITIONS_KEY,
    POSITIONS_BUCKET,
    StreamLayout,
    positions_key,
)
from nats_logship.wire.subjects import reader_names
from receiver.consume.wake import Wake
from receiver.status.status import collect_status
from shipper.publish.messages import HostMessages
from tests import secured
from tests.broker.auth.forbidden import HOSTS
from tests.broker.auth.oracle import answers, everything
from tests.raw import Raw
from tests.secured import Secured
from tests.shipper.publish.agents import PublishingAgent
from tests.support.processes import Processes

pytestmark = pytest.mark.nats

STREAMS = 2


@asynccontextmanager
async def connect(server: Secured, name: str) -> AsyncIterator[Connection]:
    connection = Connection([server.address], name, server.access(name))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_reads_writes_and_deletes_its_own_positions_only(
    server: Secured, own: Raw, host: str
) -> None:
    key = positions_key(host)

    def read_others() -> list[dict[str, str]]:
        found = (one.get("message", {}) for one in everything(own)[f"KV_{POSITIONS_BUCKET}"][2])
        subject = f"$KV.{POSITIONS_BUCKET}.{key}"
        return [one for one in found if one and one["subject"] != subject]

    others = read_others()
    async with connect(server, host) as connection:
        before = await bucket.read(connection, POSITIONS_BUCKET, key)
        assert before is not None
        assert before.value == f'"positions of {host}"'.encode()
        await bucket.write(connection, POSITIONS_BUCKET, key, b"new", before.revision)
        with pytest.raises(bucket.Conflict):
            await bucket.write(connection, POSITIONS_BUCKET, key, b"late", before.revision)
        for operation in ("DEL", "PURGE"):
            headers = {"KV-Operation": operation}
            await connection.ask(f"$KV.{POSITIONS_BUCKET}.{key}", b"", headers)
            assert await bucket.read(connection, POSITIONS_BUCKET, key) is None
            await bucket.write(connection, POSITIONS_BUCKET, key, before.value, 0)

    assert read_others() == others
    assert len(others) == len(HOSTS) - 1


@pytest.mark.parametrize(("subject", "value"), [(PAUSE_SUBJECT, "[]"), (INTERVAL_SUBJECT, 0)])
def test_a_host_receives_pauses_and_intervals_of_an_admin(
    server: Secured, subject: str, value: object
) -> None:
    with Raw(server.port, "web01") as host, Raw(server.port, "ops") as admin:
        host.subscribe(subject)
        stored = admin.ask(subject, value)
        heard = answers(host)

    assert stored["stream"] == "KV_LOGS_CONFIG"
    assert [found for found, _ in heard] == [subject]


async def test_a_monitor_has_24_readers_of_its_own_which_leave_nothing(
    server: Secured, own: Raw
) -> None:
    before = everything(own)
    async with connect(server, "watch") as connection:
        readers = [MessageReader(connection, "LOGS", at_sequence(1)) for _ in reader_names("watch")]
        found = [await reader.follow() for reader in readers]
        assert {one[0].subject for one in found} == {"logs.p0.web01"}
        with pytest.raises(OperatorError, match="all 24 consumers that this monitor may create"):
            await MessageReader(connection, "LOGS", at_sequence(1)).follow()
        for reader in readers:
            await reader.close()
    assert everything(own) == before


async def test_empty_messages_do_not_end_a_read(server: Secured, own: Raw) -> None:
    lines = [None, 1, None, None, 2, None]
    last = [own.ask("logs.p0.web02", line)["seq"] for line in lines][-1]

    async with connect(server, "watch") as connection, asyncio.timeout(30):
        reader = MessageReader(connection, "LOGS", at_sequence(last - 5))
        found = [one.payload async for one in reader.read_all(last)]

    assert found == [b"", b"1", b"", b"", b"2", b""]


async def test_a_host_moves_to_another_stream_and_a_receiver_reads_its_own(
    processes: Processes, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(
        secured.start_secured,
        processes,
        tmp_path,
        *(secured.host("web02"), secured.host("web01"), secured.receiver("r1", 1)),
        streams=STREAMS,
    )
    own, host, other, receiver = (
        Connection([server.address], "tests", server.access(name))
        for name in (secured.OWN, "web02", "web01", "r1")
    )
    try:
        layout = await require_layout(host)
        assert layout == StreamLayout(2, STREAMS) == await require_layout(receiver)
        agent = await PublishingAgent(host, host="web02").open()
        entry = await bucket.read(own, CONFIG_BUCKET, PARTITIONS_KEY)
        assert entry is not None
        assert agent.config.subject.partition == 1

        await bucket.write(own, CONFIG_BUCKET, PARTITIONS_KEY, b"1", entry.revision)
        await agent.open()

        assert agent.config.subject.partition == 0
        heads = {
            head.stream: head for head in await HostMessages(host, "web02", STREAMS).read_last()
        }
        assert heads["LOGS_1"].origin is not None
        assert heads["LOGS_1"].origin.moved == 0
        assert set(heads) == {"LOGS_0", "LOGS_1"}
        for stream in ("LOGS_0", "LOGS_1"):
            with pytest.raises(Denied):
                await other.request(f"$JS.API.DIRECT.GET.{stream}.logs.p1.web02")
        wake = Wake(receiver, 1, "LOGS_1", 1)
        assert await wake.count(1) == 2
        with pytest.raises(Denied):
            await Wake(receiver, 0, "LOGS_0", 1).count(1)
        with pytest.raises(Denied):
            await receiver.api("STREAM.MSG.GET.LOGS_0", {"seq": 1})
        shown = (await collect_status(receiver, datetime(2026, 11, 20, tzinfo=UTC))).partitions
        assert [(one.partition, one.behind, one.behind_seconds) for one in shown] == [
            (0, None, None),
            (1, 2, None),
        ]
    finally:
        for connection in (own, host, other, receiver):
            await connection.close()
