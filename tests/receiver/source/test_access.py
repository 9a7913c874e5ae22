"""The data source at a broker that lets in nobody without a password, and grants only the rights it needs."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.topology import Topology
from tests.conftest import apply_topology
from tests.receiver.partition import publish
from tests.receiver.source.test_datasource import rows_of
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats

_SECRET = "s3cret-of-the-analyst"
RIGHTS = (
    "$JS.API.STREAM.INFO.LOGS",
    "$JS.API.DIRECT.GET.LOGS",
    "$JS.API.STREAM.MSG.GET.LOGS",
)


@pytest.fixture
def guarded(processes: Processes, free_port: Callable[[], int], tmp_path: Path) -> dict[str, str]:
    where, conf = f"127.0.0.1:{free_port()}", tmp_path / "server.conf"
    allowed = ", ".join(f'"{right}"' for right in RIGHTS)
    conf.write_text(
        f'listen: {where}\njetstream {{ store_dir: "{tmp_path}/store" }}\n'
        'authorization { users: [ { user: "central", password: "c" }\n'
        f'{{ user: "analyst", password: "{_SECRET}", permissions: {{\n'
        f'  publish: [ {allowed} ], subscribe: [ "_INBOX.>" ] }} }} ] }}\n'
    )
    server = processes.start("server", [Path(sys.executable).with_name("nats-server"), "-c", conf])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 60, [server])
    url = f"nats://central:c@{where}"
    apply_topology(url, Topology(partitions=2))
    publish(url, ("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))
    return {"servers": f"nats://{where}", "user": "analyst", "password": _SECRET}


def test_the_rights_that_the_page_names_suffice_and_a_refusal_is_told_without_the_password(
    guarded: dict[str, str],
) -> None:
    page = (Path(__file__).parents[3] / "docs/spark.md").read_text("utf-8")

    assert all(right in page for right in RIGHTS)
    assert {row["host"] for row in rows_of("", **guarded)} == {"web01", "web02"}
    with pytest.raises(OperatorError, match="refuses user 'analyst'") as refused:
        rows_of("", **{**guarded, "password": "wr0ng"})
    assert "wr0ng" not in str(refused.value)
    with pytest.raises(OperatorError, match=r"permissions violation .*STREAM\.INFO\.OTHER"):
        rows_of("", **guarded, stream="OTHER")
