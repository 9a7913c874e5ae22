"""`logbroker stream` and `logbroker consumer`: what is there is listed and told; what is not logbroker's own is removed."""

import asyncio
import json
import subprocess
from collections.abc import Callable

import pytest

from broker.client.connection import Connection

pytestmark = pytest.mark.nats

Call = Callable[..., "subprocess.CompletedProcess[str]"]
OTHER = {"name": "ORDERS", "subjects": ["orders.>"]}


@pytest.fixture
def call(logbroker_inside: Call, logs_url: str) -> Call:
    """Run a command at a broker that has a stream and a consumer of somebody else's."""

    async def make() -> None:
        connection = Connection([logs_url], "test")
        await connection.api("STREAM.CREATE.ORDERS", OTHER)
        await connection.ask("orders.1", b"an order")
        for name in ("mine", "receiver-p0"):
            config = {"durable_name": name, "ack_policy": "all", "filter_subject": "logs.p0.>"}
            body = {"stream_name": "LOGS", "config": config}
            await connection.api(f"CONSUMER.CREATE.LOGS.{name}.logs.p0.>", body)
        await connection.close()

    asyncio.run(make())
    return lambda *words: logbroker_inside(*words, "--server", logs_url)


def test_streams_and_consumers_are_listed_and_told(call: Call) -> None:
    table = call("stream", "ls").stdout
    listed = json.loads(call("stream", "ls", "--json").stdout)

    assert {info["config"]["name"] for info in listed} >= {"LOGS", "ORDERS", "KV_LOGS_OFFSETS"}
    assert any(line.split()[:3] == ["ORDERS", "orders.>", "1"] for line in table.splitlines())
    assert "state.messages" in call("stream", "info", "ORDERS").stdout
    assert json.loads(call("stream", "info", "ORDERS", "--json").stdout)["state"]["messages"] == 1
    assert "mine" in call("consumer", "ls").stdout
    found = json.loads(call("consumer", "ls", "LOGS", "--json").stdout)
    assert {info["name"] for info in found} == {"mine", "receiver-p0"}
    assert json.loads(call("consumer", "info", "LOGS", "mine", "--json").stdout)["name"] == "mine"


def test_what_is_of_others_is_removed_by_who_says_so(call: Call) -> None:
    assert call("stream", "rm", "ORDERS").returncode == 2
    assert call("consumer", "rm", "LOGS", "mine").returncode == 2

    assert "removed stream ORDERS with 1 messages" in call("stream", "rm", "ORDERS", "--yes").stdout
    assert call("consumer", "rm", "LOGS", "mine", "--yes").returncode == 0

    assert "ORDERS" not in call("stream", "ls").stdout
    assert "mine" not in call("consumer", "ls").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stream", "rm", "LOGS", "--yes"), "logbroker purge"),
        (("stream", "rm", "LOGS_3", "--yes"), "logbroker purge"),
        (("stream", "rm", "KV_LOGS_POSITIONS", "--yes"), "logbroker's own"),
        (("consumer", "rm", "LOGS", "receiver-p0", "--yes"), "own and stays"),
        (("stream", "info", "NONE"), "stream not found"),
        (("consumer", "info", "LOGS", "none"), "consumer not found"),
        (("stream", "info", "a.b"), "cannot be the name"),
    ],
)
def test_what_is_logbrokers_own_stays_and_what_is_not_there_is_said(
    call: Call, words: tuple[str, ...], said: str
) -> None:
    before = call("stream", "ls").stdout + call("consumer", "ls").stdout

    called = call(*words)

    assert called.returncode in {1, 2}
    assert said in called.stderr
    assert call("stream", "ls").stdout + call("consumer", "ls").stdout == before
