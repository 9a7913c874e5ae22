"""The status document, from the server's answers to the table."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from broker.inspect.collect import collect_status
from broker.inspect.hosts import collect_hosts
from broker.inspect.servers import collect_reports
from broker.inspect.status import (
    BrokerStatus,
    PartitionStatus,
    SiteStatus,
    StreamStatus,
    describe,
    format_partition,
)
from broker.inspect.top import TopView
from broker.report import REPORT_SUBJECT, NodeReport
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection, Message
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.offset import Offset
from nats_logship.wire.stream_message import StreamMessage
from nats_logship.wire.streams import STREAM
from receiver.consume.fetch import consumer_config
from tests.broker.conftest import logbroker
from tests.broker.inspect.conftest import Publish, message
from tests.partitions import add_subjects

NOW = "2026-11-21T16:00:00Z"


def altered(known: BaseModel, **changed: Any) -> Any:
    return known.model_copy(update=changed)


def a_stream(cluster: Any = None, **changed: Any) -> StreamStatus:
    """Return a stream of ten messages, half full."""
    info = {
        "created": "2026-11-20T00:00:00Z",
        "config": {
            "name": "LOGS",
            **{"max_bytes": 1000, "max_age": 86_400 * 10**9, "num_replicas": 1, "max_msgs": -1},
        },
        "state": {
            **{"messages": 10, "bytes": 500, "first_seq": 1, "last_seq": 10},
            **{"first_ts": "2026-11-21T15:00:00Z", "last_ts": "2026-11-21T15:59:59Z"},
        },
        "cluster": cluster or {"leader": "n1"},
    }
    return StreamStatus.model_validate(info).model_copy(update=changed)


def a_status(**changed: Any) -> BrokerStatus:
    """Return a broker with two partitions, of which one has a receiver."""
    offset = {"next": 5, "epoch": 2, "owner": "central", "lines": 40, "bytes": 400}
    received = {"partition": 0, "stream": "LOGS", "behind": 3, "behind_seconds": 120.0, **offset}
    idle = {"partition": 1, "stream": "LOGS", "behind": 0, "behind_seconds": 0.0}
    known = BrokerStatus(
        **{"server": "nats://b:4222", "version": "2.15.1", "now": NOW, "hosts": 3},
        answer_seconds=0.01,
        **{"store_used": 600, "store_limit": 2000, "current_partitions": 2},
        streams=(a_stream(),),
        partitions=(PartitionStatus(**received), PartitionStatus(**idle)),
    )
    return known.model_copy(update=changed)


def a_node(**changed: Any) -> NodeReport:
    """Return a server that has space."""
    known = {"name": "n1", "version": "2.15.1", "credentials": 3, "free": 2**30, "reserve": 1}
    return NodeReport.model_validate({**known, **changed})


def _text(status: BrokerStatus) -> str:
    return "\n".join(f"{name}: {text}" for name, text in describe(status))


def test_replicas_are_shown_after_their_leader() -> None:
    peers = [
        {"name": "n2", "current": False, "lag": 12, "active": 10**9},
        {"name": "n3", "current": False, "offline": True, "active": 90 * 10**9},
    ]

    found = a_stream({"name": "C", "leader": "n1", "replicas": peers}, wanted_replicas=3)

    assert [one.name for one in found.followers] == ["n2", "n3"]
    assert (found.leader, found.current_replicas) == ("n1", 1)
    assert not a_stream({"name": "C", "replicas": peers}).leader
    assert "cluster: n1 leads, n2, n3" in _text(a_status(streams=(found,)))


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (None, "no report"),
        (a_node(credentials=None), "OPEN"),
        (a_node(mirror="one"), "a mirror of site one, which takes no lines"),
        (a_node(frozen="full"), "FROZEN: full"),
    ],
)
def test_the_report_of_a_server_is_shown(node: NodeReport | None, shown: str) -> None:
    assert shown in _text(a_status(nodes=(node,) if node else ()))


@pytest.mark.nats
async def test_the_status_shows_stream_and_offsets(
    connection: Connection, publish: Publish, logs_url: str
) -> None:
    config = consumer_config(0)
    name = f"CONSUMER.CREATE.LOGS.{config['durable_name']}.{config['filter_subject']}"
    await connection.api(name, {"stream_name": "LOGS", "config": config})
    await publish("web01", b"received\n")
    await publish("web02", b"x\n", partition=1)
    await publish("web01", b"waits\n")
    offset = Offset(2, 1, "", "central", lines=1, size=9)
    await connection.ask("$KV.LOGS_OFFSETS.p0", offset.encode())

    ended = await asyncio.to_thread(logbroker, "status", "--json", "--server", logs_url)
    found = json.loads(ended.stdout)
    first, second = found["partitions"]
    assert (found["hosts"], found["messages"], found["behind"]) == (2, 3, 3)
    assert found["streams"][0]["last_sequence"] == 3
    assert (first["owner"], first["offset"], first["behind"], first["lines"]) == (
        "central",
        2,
        2,
        1,
    )
    assert 0 < first["behind_seconds"] < 60
    assert (second["owner"], second["behind"]) == (None, 1)  # no receiver has created its consumer
    assert 0 < second["behind_seconds"] < 60


@pytest.mark.nats
async def test_a_receiver_is_asked_once_and_reported_missing_when_it_is_gone(
    connection: Connection, logs_url: str
) -> None:
    receiver, asked = Connection([logs_url], "receiver"), []

    async def answer(message: Message) -> None:
        asked.append(message.subject)
        lie = b'{"gaps": 7, "running": false, "missing_seconds": "x"}'
        await receiver.publish(message.reply, b'{"0": %s}' % lie)

    await receiver.subscribe("logship.receiver.here", answer)
    await receiver.api("INFO")  # the subscription has reached the server
    for number in range(2):
        offset = Offset(1, 1, "", "central", presence="here")
        await connection.ask(f"$KV.LOGS_OFFSETS.p{number}", offset.encode())

    there = await collect_status(connection)
    await receiver.close()
    gone = await collect_status(connection)
    await connection.ask("$KV.LOGS_OFFSETS.p0", replace(offset, released=True).encode())
    released = await collect_status(connection)

    assert asked == ["logship.receiver.here"]
    assert [one.receiver for one in there.partitions] == [
        {"gaps": 7, "running": True},
        {"running": True},
    ]
    assert [one.missing_seconds for one in there.partitions] == [0, 0]
    assert all(one.receiver["running"] is False for one in gone.partitions)
    first, _ = gone.partitions
    assert 0 < first.missing_seconds < 60
    (last, _), (_, second) = released.partitions, gone.partitions
    assert last.receiver["released"]
    assert 0 < last.missing_seconds < second.missing_seconds + 60
    assert format_partition(altered(first))[-1] == "central (gone)"
    assert format_partition(last)[-1] == "nobody, last central"


@pytest.mark.nats
async def test_a_stream_without_our_buckets_has_no_partitions(connection: Connection) -> None:
    for bucket in ("LOGS_CONFIG", "LOGS_OFFSETS"):
        await connection.api(f"STREAM.DELETE.KV_{bucket}")

    status = await collect_status(connection)

    assert (status.partitions, status.nodes) == ((), ())
    await connection.api("STREAM.DELETE.LOGS")
    with pytest.raises(Rejected, match="stream not found"):
        await collect_status(connection)


@pytest.mark.nats
async def test_every_logbroker_reports_and_other_answers_are_skipped(
    connection: Connection, logs_url: str
) -> None:
    nodes = [Connection([logs_url], f"node {number}") for number in range(3)]
    answers = [a_node(name="n2").model_dump_json(), "no report", a_node().model_dump_json()]
    for node, answer in zip(nodes, answers, strict=True):

        async def reply(message: RawMessage, node: Connection = node, answer: str = answer) -> None:
            await node.publish(message.reply, answer.encode())

        await node.connect()
        await node.subscribe(REPORT_SUBJECT, reply)
        await node.api("INFO")  # the subscription has reached the server

    found = await collect_reports(connection)

    assert [report.name for report in found] == ["n1", "n2"]
    for node in nodes:
        await node.close()


def test_rates_are_counts_since_the_last_view_by_time() -> None:
    """In two seconds one receiver commits 200 lines; the offset of another is moved back."""
    (first, second), (_, headers) = a_status().partitions, message(b"a line\n" * 5)
    view = TopView(a_status(partitions=(first, altered(second, lines=9))))
    for _ in range(10):
        view.add(StreamMessage("logs.p0.web01", 1, 1, headers, b"", 1000))
        # what a receiver would quarantine has bytes, but no lines and no host
        view.add(StreamMessage("logs.p1.evil", 1, 1, {"Log-Spans": "x"}, b"", 500))
    view.finish(a_status(partitions=(altered(first, lines=240), altered(second, lines=0))), 2.0)

    one, other = view.partitions[0], view.partitions[1]
    assert (one.rounds, one.lines, one.bytes, one.lines_out) == (5, 25, 5000, 100)
    assert (other.lines, other.bytes, other.lines_out) == (0, 2500, 0)
    assert view.hosts.keys() == {"web01"}


@pytest.mark.nats
async def test_hosts_are_those_with_messages(connection: Connection, publish: Publish) -> None:
    assert await collect_hosts(connection) == []
    await publish("web01", b"one\ntwo\n")
    await publish("web01", b"", more=(("/var/log/auth.log", b"x\n"),))
    await publish("web01", b"removed\n", file="/old")
    await publish("db01.example.net", b"x\n", file="/old")
    await publish("db01.example.net", b"y\n", partition=1, agent="2-0000000b")
    await connection.ask("logs.p0.plain", b"of another client")
    await connection.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 3})
    await add_subjects(connection, "logs.q0.>")
    await connection.ask("logs.q0.nobody", b"of no host")

    db, plain, web = await collect_hosts(connection)

    assert (web.host, web.messages, web.file) == ("web01", 2, "/var/log/auth.log")
    assert (db.partitions, db.messages, db.agent) == ((0, 1), 2, "2-0000000b")
    assert (plain.messages, plain.file, plain.agent) == (1, "", "")
    assert 0 < web.last_seen < db.last_seen < plain.last_seen
    assert 0 <= web.silent_seconds < 60


@pytest.mark.nats
async def test_a_host_that_sends_all_the_time_is_listed(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"one\n")
    await publish("web02", b"two\n")

    async def send() -> None:
        while True:
            await publish("web01", b"more\n")

    sending = asyncio.create_task(send())
    try:
        found = [await collect_hosts(connection) for _ in range(30)]
    finally:
        sending.cancel()

    assert {tuple(host.host for host in hosts) for hosts in found} == {("web01", "web02")}


@pytest.mark.parametrize(
    ("site", "text", "behind"),
    [
        (SiteStatus(name="away", lag=7, contact_seconds=14.9), "site: away: 7 behind", 7),
        (
            *(SiteStatus(name="away", lag=7, contact_seconds=15.0),),
            *("site: away: unknown since 2026-11-21T15:59:45Z, was 7 behind", None),
        ),
        (
            SiteStatus(name="away"),
            "site: away: unknown, no contact since this broker started",
            None,
        ),
    ],
)
def test_how_far_a_copy_is_behind_is_unknown_without_contact(
    site: SiteStatus, text: str, behind: int | None
) -> None:
    status = a_status(streams=(a_stream(sites=(site,)),))

    assert text in _text(status).splitlines()
    assert status.document()["streams"][0]["sites"][0]["behind"] == behind
