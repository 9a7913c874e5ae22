"""`logbroker stream` and `consumer` list and show all, and remove only what is of others."""

import json
from pathlib import Path

import pytest

from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from tests.broker.conftest import Call, StartBroker, ask
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats

OTHER = {"name": "ORDERS", "subjects": ["orders.>"]}


@pytest.fixture
def call(call: Call, logs_url: str) -> Call:
    """Run a command at a broker with a stream and a consumer of somebody else."""

    async def make(connection: Connection) -> None:
        await connection.api("STREAM.CREATE.ORDERS", OTHER)
        await connection.ask("orders.1", b"an order")
        for name in ("mine", "receiver-p0"):
            config = {"durable_name": name, "ack_policy": "all", "filter_subject": "logs.p0.>"}
            body = {"stream_name": "LOGS", "config": config}
            await connection.api(f"CONSUMER.CREATE.LOGS.{name}.logs.p0.>", body)

    ask(logs_url, make)
    return call


def test_streams_and_consumers_are_listed_and_shown(call: Call) -> None:
    table = call("stream", "ls").stdout
    listed = json.loads(call("stream", "ls", "--json").stdout)

    assert {info["config"]["name"] for info in listed} >= {"LOGS", "ORDERS", "KV_LOGS_OFFSETS"}
    assert "ORDERS: 1 message, 46 B, orders.>" in table.splitlines()
    shown, as_json = (call("stream", "info", "ORDERS", *one).stdout for one in ((), ("--json",)))
    assert json.loads(shown)["state"]["messages"] == 1
    assert as_json.splitlines()[:3] == shown.splitlines()[:3]
    assert [
        one["config"]["name"] for one in json.loads(call("stream", "ls", "ORDERS", "--json").stdout)
    ] == ["ORDERS"]
    assert "mine" in call("consumer", "ls").stdout
    found = json.loads(call("consumer", "ls", "LOGS", "--json").stdout)
    assert {info["name"] for info in found} == {"mine", "receiver-p0"}
    assert json.loads(call("consumer", "info", "LOGS", "mine", "--json").stdout)["name"] == "mine"


def test_streams_and_consumers_of_others_are_removed_after_a_question(call: Call) -> None:
    assert call("stream", "rm", "ORDERS").returncode == 2
    assert call("consumer", "rm", "LOGS", "mine").returncode == 2

    assert "removed stream ORDERS with 1 message" in call("stream", "rm", "ORDERS", "--yes").stdout
    removed = json.loads(call("consumer", "rm", "LOGS", "mine", "--yes", "--json").stdout)
    assert removed == {"name": "LOGS.mine", "removed": True}

    assert "ORDERS" not in call("stream", "ls").stdout
    assert "mine" not in call("consumer", "ls").stdout


def test_the_settings_limit_the_number_of_streams_and_consumers(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = tmp_path / "broker.toml"
    settings.write_text("partitions = 2\nmax_streams = 5\nmax_consumers = 3\n")
    broker = start_broker("--config", str(settings))
    url = broker.ready()["server"]

    def make(stream: str, *consumers: str) -> None:
        ask(url, ("$JS.API.STREAM.CREATE." + stream, json.dumps({"name": stream}).encode()))
        for name in consumers:
            body = {"stream_name": "LOGS", "config": {"durable_name": name, "ack_policy": "all"}}
            ask(url, (f"$JS.API.CONSUMER.CREATE.LOGS.{name}", json.dumps(body).encode()))

    make("FIFTH", "first", "second", "third")
    with pytest.raises(Rejected, match="maximum consumers limit"):
        make("FIFTH", "fourth")
    with pytest.raises(Rejected, match="maximum number of streams"):
        make("SIXTH")
    settings.write_text("partitions = 2\nmax_streams = 6\n")
    broker.hang_up()
    wait_until("it is reloaded", lambda: "settings reloaded" in broker.read_log(), 60)
    make("SIXTH", "fourth")

    assert ask(url, "INFO")["limits"]["max_streams"] == 6


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("stream", "rm", "LOGS", "--yes"), "logbroker purge"),
        (("stream", "rm", "LOGS_3", "--yes"), "logbroker purge"),
        (("stream", "rm", "KV_LOGS_POSITIONS", "--yes"), "logbroker's own"),
        (("consumer", "rm", "LOGS", "receiver-p0", "--yes"), "own and is not"),
        (("stream", "info", "NONE"), "there is no stream NONE; `logbroker stream ls` lists"),
        (("stream", "rm", "NONE", "--yes"), "there is no stream NONE; `logbroker stream ls` lists"),
        (("stream", "ls", "NONE"), "there is no stream NONE; `logbroker stream ls` lists"),
        (("consumer", "ls", "NONE"), "there is no stream NONE; `logbroker stream ls` lists"),
        (("consumer", "info", "NONE", "x"), "there is no stream NONE; `logbroker stream ls` lists"),
        (("consumer", "info", "LOGS", "x"), "there is no consumer LOGS.x; `logbroker consumer ls`"),
        (("get", "--host", "web01", "--stream", "NONE"), "--stream must be one of LOGS"),
        (("stream", "info", "a.b"), "cannot be the name"),
        (("consumer", "info", "LOGS"), "takes 2 values"),
    ],
)
def test_logbrokers_own_are_not_removed_and_missing_ones_are_reported(
    call: Call, command: tuple[str, ...], text: str
) -> None:
    before = call("stream", "ls").stdout + call("consumer", "ls").stdout

    called = call(*command)

    assert called.returncode in {1, 2}
    assert text in called.stderr
    assert call("stream", "ls").stdout + call("consumer", "ls").stdout == before
