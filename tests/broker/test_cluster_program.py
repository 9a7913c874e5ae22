"""`logbroker run --cluster`, as far as one server goes: it waits for the others, and takes no store that is not its own."""

from collections.abc import Callable

import pytest

from tests.broker.conftest import StartBroker
from tests.support.processes import wait_until

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
    wait_until("it waits", lambda: "waiting for its cluster" in broker.said, 60)

    assert not (broker.store / "broker.json").exists()
    assert (broker.store / "nats-server.conf").stat().st_mode & 0o777 == 0o600
    assert broker.end() == 0
    assert (broker.store / "cluster-member").read_text("utf-8") == "b1\n"
    alone = start_broker()
    assert alone.popen.wait(120) == 78
    assert "is that of server b1 of a cluster" in alone.said
