import json

import pytest

from broker.connecting.connection import Arrived, Connection, Rejected
from broker.looking.reports import reports
from broker.looking.status import ask
from broker.offset import Offset
from broker.report import SUBJECT
from broker.topology import Topology
from tests.broker.conftest import StartBroker
from tests.broker.looking.conftest import Call, Publish

pytestmark = pytest.mark.nats


async def _provision(connection: Connection) -> None:
    for partition in range(2):
        config = Topology(partitions=2).consumer(partition)
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
    await publish("web01", b"a\n", partition=2)

    strays = (await ask(connection)).strays

    assert strays is not None
    assert (strays.messages, strays.subjects) == (1, ("logs.p2.web01",))


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
    assert (checked.returncode, "there is room" in checked.stdout) == (0, True)
