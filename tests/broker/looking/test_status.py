import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.processes import Processes
from broker.client.connection import Arrived, Connection, Rejected
from broker.looking.reports import reports
from broker.looking.status import ask
from broker.provision.joining import join
from broker.report import SUBJECT
from broker.topology import Topology
from broker.wire.offset import Offset
from broker.wire.streams import consumer_config
from tests.broker.cluster import Cluster, Node
from tests.broker.conftest import StartBroker
from tests.broker.looking.conftest import Call, Publish
from tests.partitions import add_subjects

pytestmark = pytest.mark.nats


async def _provision(connection: Connection) -> None:
    for partition in range(2):
        config = consumer_config(partition)
        await connection.api(
            f"CONSUMER.CREATE.LOGS.{config['durable_name']}.{config['filter_subject']}",
            {"stream_name": "LOGS", "config": config},
        )


async def test_a_partition_tells_since_when_its_oldest_message_waits(
    connection: Connection, publish: Publish
) -> None:
    await _provision(connection)
    await publish("web01", b"received\n")
    await publish("web02", b"x\n", partition=1)
    await publish("web01", b"waits\n")
    offset = Offset(2, 1, "", "central", lines=1, size=9)
    await connection.ask("$KV.LOGS_OFFSETS.p0", offset.encode())

    status = await ask(connection)

    stored = (await connection.api("STREAM.MSG.GET.LOGS", {"seq": 3}))["message"]["time"]
    assert status.partitions[0].oldest_pending == stored
    assert (status.partitions[0].lines, status.partitions[0].bytes) == (1, 9)
    assert status.partitions[1].pending == 1
    age = status.partitions[0].age(status.now)
    assert age is not None
    assert 0 <= age < 60


async def test_lines_outside_of_the_partitions_are_told(
    connection: Connection, publish: Publish
) -> None:
    await publish("web01", b"a\n")
    await add_subjects(connection, "logs.p2.>")
    await publish("web01", b"a\n", partition=2)

    strays = (await ask(connection)).strays

    assert strays is not None
    assert (strays.messages, strays.subjects) == (1, ("logs.p2.web01",))


async def test_a_host_in_several_partitions_is_one_and_what_names_none_is_no_host(
    connection: Connection, publish: Publish, called: Call, logs_url: str
) -> None:
    await add_subjects(connection, "logs.p7.>", "logs.q0.>")
    for partition in (0, 1, 7):
        await publish("web01", b"a\n", partition=partition)
    await publish("db01", b"a\n")
    for subject in ("logs.q0.evil", "logs.p0.a\x7fb"):
        await connection.ask(subject, b"a\n")

    shown = await asyncio.to_thread(called, "status", "--json", "--server", logs_url)
    checked = await asyncio.to_thread(called, "check", "stream", "--server", logs_url)

    assert json.loads(shown.stdout)["hosts"] == 2
    assert "stream_hosts=2 " in checked.stdout


@pytest.mark.timeout(540)
def test_status_waits_for_a_new_leader_where_the_old_one_has_died(
    tmp_path: Path, logbroker: Callable[..., "subprocess.CompletedProcess[str]"]
) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes)

        async def begin(node: Node) -> None:
            connection = Connection([node.url], node.name)
            topology = Topology(partitions=2, replicas=3, max_bytes=100_000_000)
            await join(connection, node.name, topology, lambda _: None)
            await connection.close()

        async def begin_all() -> None:
            async with asyncio.timeout(120):
                await asyncio.gather(*map(begin, cluster.nodes.values()))

        asyncio.run(begin_all())
        cluster.wait_until_whole()
        cluster.leader().kill()
        servers = [word for url in cluster.urls for word in ("--server", url)]

        ended = logbroker("status", "--json", *servers)

        assert (ended.returncode, ended.stderr) == (0, "")
        assert json.loads(ended.stdout)["stream"] == "LOGS"


async def test_a_stream_without_our_buckets_has_no_partitions(connection: Connection) -> None:
    for bucket in ("LOGS_CONFIG", "LOGS_OFFSETS"):
        await connection.api(f"STREAM.DELETE.KV_{bucket}")

    status = await ask(connection)

    assert (status.partitions, status.strays) == ((), None)
    assert status.nodes == ()


async def test_without_a_stream_the_server_says_so(connection: Connection) -> None:
    await connection.api("STREAM.DELETE.LOGS")

    with pytest.raises(Rejected, match="stream not found"):
        await ask(connection)


async def test_every_logbroker_answers_and_what_is_no_report_is_passed_over(
    connection: Connection, logs_url: str
) -> None:
    nodes = [Connection([logs_url], f"node {number}") for number in range(3)]
    answers = [json.dumps({"name": "n2"}), "no report", json.dumps({"name": "n1"})]
    for node, answer in zip(nodes, answers, strict=True):
        await node.once()
        await node.subscribe(SUBJECT, _answering(node, answer))
        await node.api("INFO")  # the subscription has reached the server

    found = await reports(connection)

    assert [report["name"] for report in found] == ["n1", "n2"]
    for node in nodes:
        await node.close()


def _answering(node: Connection, answer: str):  # type: ignore[no-untyped-def] # what nats-py calls
    async def hear(message: Arrived) -> None:
        await node.publish(message.reply, answer.encode())

    return hear


def test_a_logbroker_tells_of_itself(start_broker: StartBroker, called: Call) -> None:
    server = start_broker("--partitions", "1").wait_ready()["server"]

    status = json.loads(called("status", "--json", "--server", server).stdout)
    checked = called("check", "room", "store", "--server", server)

    (node,) = status["nodes"]
    assert (node["version"], node["frozen"]) == (status["version"], None)
    assert (node["provenance"], node["credentials"]) == ("pinned", None)
    assert node["free"] > 0
    assert (checked.returncode, "there is space" in checked.stdout) == (0, True)
