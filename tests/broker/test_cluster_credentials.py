"""Credentials of a cluster: each broker has a store of its own, and an admin elsewhere revokes in all of them at once."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from broker.client.access import Access
from broker.client.connection import BrokerAway, Connection
from tests.broker.cluster import Cluster
from tests.broker.conftest import call_logbroker
from tests.broker.test_credentials_program import Secured
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]


async def _gets_in(url: str, access: Access) -> bool:
    connection = Connection([url], "tests", access=access)
    try:
        await connection.once()
    except BrokerAway:
        return False
    finally:
        await connection.close()
    return True


def gets_in(cluster: Cluster, file: Path) -> list[bool]:
    return [asyncio.run(_gets_in(url, Secured.access(file))) for url in cluster.urls]


def call(command: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    return call_logbroker("credentials", command, *words)


def test_an_admin_elsewhere_revokes_at_every_broker_of_a_cluster(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, processes)
    cluster.wait_until_ready()
    first, *others = cluster.nodes.values()
    output = tmp_path / "carried"
    for kind, names in [("admin", ["ops"]), ("host", ["web1", "web2"])]:
        call("add", kind, *names, "--store-dir", first.folder, "--output", f"{output}/")
    for node in others:
        shutil.copy(first.folder / "credentials.json", node.folder)
    web1, web2 = output / "host-web1.toml", output / "host-web2.toml"
    wait_until("every broker has taken them", lambda: all(gets_in(cluster, web1)), 30)
    admin = ("--server", ",".join(cluster.urls), "--config", output / "admin-ops.toml")

    done = call("revoke", "host", "web1", *admin)
    left = call("list", "--json", *admin)

    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["n0", "n1", "n2"]
    wait_until("it gets in nowhere", lambda: not any(gets_in(cluster, web1)), 30)
    assert all(gets_in(cluster, web2))
    assert {one["name"] for one in json.loads(left.stdout)["credentials"]} == {"ops", "web2"}
    assert "differ" not in left.stderr

    others[1].kill()
    partly = call("revoke", "host", "web2", *admin)
    left = call("list", "--json", *admin)

    assert partly.returncode == 1
    assert "n2: no answer" in partly.stdout, partly
    assert "not revoked everywhere" in partly.stderr
    assert {one["name"] for one in json.loads(left.stdout)["credentials"]} == {"ops"}
    assert "n2: no answer" in left.stderr
