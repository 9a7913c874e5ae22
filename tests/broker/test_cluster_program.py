"""`logbroker run --cluster`, as far as one server goes: it waits for the others, and takes no store that is not its own."""

import asyncio
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.access import Access
from broker.client.connection import Connection
from broker.server.state_file import read_state
from broker.server.store import is_locked
from tests.broker.cluster import Brokers
from tests.broker.conftest import StartBroker, call_logbroker
from tests.support.processes import Processes, wait_until

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
    assert "is of a server of a cluster" in alone.said


async def gets_in(server: str, access: Access) -> bool:
    connection = Connection([server], "test", access=access)
    try:
        await (await connection.once()).flush()
    finally:
        await connection.close()
    return True


@pytest.mark.long
def test_a_credential_that_is_added_while_a_cluster_is_waited_for_counts_once_it_is_there(
    tmp_path: Path, processes: Processes
) -> None:
    cluster = Brokers(tmp_path / "cluster", processes)
    first, *others = cluster.nodes.values()
    for node in others:
        node.kill()
    wait_until("it waits", lambda: "waiting for its cluster" in first.process.said(), 60)
    assert is_locked(first.folder)

    words = ("credentials", "add", "admin", "ops", "--store-dir", first.folder)
    added = call_logbroker(*words, "--server", first.url, "--output", tmp_path / "ops.toml")

    assert added.returncode == 0, added.stderr
    assert "is not ready yet" in added.stdout
    assert "in force as soon as it is" in added.stdout
    assert "has taken the change" not in added.stdout
    assert read_state(first.folder) == {}
    for node in others:
        node.start()
    cluster.wait_until_ready(first)
    taken = lambda: read_state(first.folder).get("credentials", {}).get("revision")  # noqa: E731
    wait_until("it is taken", lambda: taken() == 1, 60)
    seed = tomllib.loads((tmp_path / "ops.toml").read_text())["nkey_seed"]
    assert asyncio.run(gets_in(first.url, Access(nkey_seed=seed)))
