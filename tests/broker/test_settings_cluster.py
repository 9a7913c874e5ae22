import pytest
from click import UsageError

from broker.app.address import Address
from broker.app.configuration import load
from broker.settings import BrokerSettings
from broker.settings_cluster import parse_route


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("nats-route://b2:6222", Address("b2", 6222)),
        ("nats://b2.example.net:6222/", Address("b2.example.net", 6222)),
        ("tls://[fd00::2]:6222", Address("fd00::2", 6222)),
        ("b2:7000", Address("b2", 7000)),
    ],
)
def test_a_route_is_read_as_people_write_it(text: str, address: Address) -> None:
    assert parse_route(text) == address


@pytest.mark.parametrize("text", ["b2", "http://b2:1", "nats-route://b2:0", "nats-route://:x", ""])
def test_a_route_that_no_server_could_take_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="route"):
        load(BrokerSettings, {"route": (text,)}, None)


def test_a_secret_in_a_route_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="--cluster-secret-file") as refused:
        load(BrokerSettings, {"route": ("nats-route://u:s3cret@b2:6222",)}, None)

    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "replicas"),
    [
        pytest.param({}, None, id="alone"),
        pytest.param({"cluster": "logs"}, 3, id="cluster"),
        pytest.param({"cluster": "logs", "replicas": "2"}, 2, id="said"),
    ],
)
def test_a_cluster_holds_each_line_three_times_and_nobody_else_changes_what_is_there(
    given: dict[str, str], replicas: int | None
) -> None:
    topology = load(BrokerSettings, given, None).topology()

    assert topology.streams()[0].get("num_replicas") == replicas
