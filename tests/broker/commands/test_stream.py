"""`logbroker stream` and `logbroker consumer`: what is there is listed and told; what is not logbroker's own is removed."""

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
    """Run a command at a broker that has a stream and a consumer of somebody else's."""

    async def make(connection: Connection) -> None:
        await connection.api("STREAM.CREATE.ORDERS", OTHER)
        await connection.ask("orders.1", b"an order")
        for name in ("mine", "receiver-p0"):
            config = {"durable_name": name, "ack_policy": "all", "filter_subject": "logs.p0.>"}
            body = {"stream_name": "LOGS", "config": config}
            await connection.api(f"CONSUMER.CREATE.LOGS.{name}.logs.p0.>", body)

    ask(logs_url, make)
    return call


def test_streams_and_consumers_are_listed_and_told(call: Call) -> None:
    table = call("stream", "ls").stdout
    listed = json.loads(call("stream", "ls", "--json").stdout)

    assert {info["config"]["name"] for info in listed} >= {"LOGS", "ORDERS", "KV_LOGS_OFFSETS"}
    assert "ORDERS: 1 message, 46 B, orders.>" in table.splitlines()
    told = call("stream", "info", "ORDERS").stdout
    assert json.loads(told)["state"]["messages"] == 1
    assert (
        call("stream", "info", "ORDERS", "--json").stdout.splitlines()[:3] == told.splitlines()[:3]
    )
    assert "mine" in call("consumer", "ls").stdout
    found = json.loads(call("consumer", "ls", "LOGS", "--json").stdout)
    assert {info["name"] for info in found} == {"mine", "receiver-p0"}
    assert json.loads(call("consumer", "info", "LOGS", "mine", "--json").stdout)["name"] == "mine"


def test_what_is_of_others_is_removed_by_who_says_so(call: Call) -> None:
    assert call("stream", "rm", "ORDERS").returncode == 2
    assert call("consumer", "rm", "LOGS", "mine").returncode == 2

    assert "removed stream ORDERS with 1 message" in call("stream", "rm", "ORDERS", "--yes").stdout
    removed = json.loads(call("consumer", "rm", "LOGS", "mine", "--yes", "--json").stdout)
    assert removed == {"name": "LOGS.mine", "removed": True}

    assert "ORDERS" not in call("stream", "ls").stdout
    assert "mine" not in call("consumer", "ls").stdout


def test_jetstream_takes_as_many_streams_and_consumers_as_the_settings_say(
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
    wait_until("it is taken over", lambda: "settings reloaded" in broker.said(), 60)
    make("SIXTH", "fourth")

    assert ask(url, "INFO")["limits"]["max_streams"] == 6


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stream", "rm", "LOGS", "--yes"), "logbroker purge"),
        (("stream", "rm", "LOGS_3", "--yes"), "logbroker purge"),
        (("stream", "rm", "KV_LOGS_POSITIONS", "--yes"), "logbroker's own"),
        (("consumer", "rm", "LOGS", "receiver-p0", "--yes"), "own and is not"),
        (("stream", "info", "NONE"), "stream not found"),
        (("consumer", "info", "LOGS", "none"), "consumer not found"),
        (("stream", "info", "a.b"), "cannot be the name"),
        (("consumer", "info", "LOGS"), "takes 2 values"),
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
