"""`logbroker run --cluster`, as far as one server goes: it waits for the others, and takes no store that is not its own."""

import json
from collections.abc import Callable

import pytest

from bench.processes import wait_until
from tests.broker.conftest import StartBroker

pytestmark = pytest.mark.nats


def options(port: int) -> tuple[str, ...]:
    return (
        *("--cluster", "logs", "--cluster-listen", f"127.0.0.1:{port}", "--server-name", "b1"),
        *("--route", f"nats-route://127.0.0.1:{port}", "--route", "nats-route://127.0.0.1:1"),
    )


def test_a_server_that_is_alone_waits_for_its_cluster_and_is_a_member_from_then_on(
    start_broker: StartBroker, free_port: Callable[[], int]
) -> None:
    port = free_port()
    broker = start_broker(*options(port))
    wait_until("it waits", lambda: "waiting for its cluster" in broker.said, 20)

    assert not (broker.store / "broker.json").exists()
    assert (broker.store / "nats-server.conf").stat().st_mode & 0o777 == 0o600
    assert broker.end() == 0
    assert json.loads((broker.store / "cluster.json").read_text("utf-8"))["server_name"] == "b1"
    alone = start_broker()
    assert alone.popen.wait(40) == 78
    assert "is of a server of a cluster" in alone.said
