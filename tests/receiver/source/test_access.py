"""The data source at a broker that lets in nobody without a password, over TLS, and grants only the rights it needs."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.client.access import Access
from broker.client.bucket import write
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY
from tests.receiver.source.by_hand import rows_of
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats

_SECRET = "s3cret-of-the-analyst"
RIGHTS = (
    "$JS.API.STREAM.INFO.LOGS",
    "$JS.API.DIRECT.GET.LOGS",
    "$JS.API.STREAM.MSG.GET.LOGS",
)
PAGE = (Path(__file__).parents[3] / "docs/spark.md").read_text("utf-8")


@pytest.fixture
def guarded(
    processes: Processes, free_port: Callable[[], int], tls: Path, tmp_path: Path
) -> dict[str, str]:
    where, conf = f"127.0.0.1:{free_port()}", tmp_path / "server.conf"
    allowed = ", ".join(f'"{right}"' for right in RIGHTS)
    conf.write_text(
        f'listen: {where}\njetstream {{ store_dir: "{tmp_path}/store" }}\n'
        f'tls {{ cert_file: "{tls}/server.pem", key_file: "{tls}/server.key" }}\n'
        'authorization { users: [ { user: "central", password: "c" }\n'
        f'{{ user: "analyst", password: "{_SECRET}", permissions: {{\n'
        f'  publish: [ {allowed} ], subscribe: [ "_INBOX.>" ] }} }} ] }}\n'
    )
    server = processes.start("server", [Path(sys.executable).with_name("nats-server"), "-c", conf])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 60, [server])

    async def fill() -> None:
        access = Access(user="central", password="c", tls_ca=tls / "authority.pem")
        connection = Connection([f"tls://{where}"], "test", access=access)
        await connection.once()
        for configuration in Topology().streams():
            await connection.api(f"STREAM.CREATE.{configuration['name']}", configuration)
        await write(connection, CONFIG_BUCKET, PARTITIONS_KEY, b"2", 0)
        await connection.ask("logs.p0.web01", b"one\ntwo\n")
        await connection.ask("logs.p1.web02", b"three\n")
        await connection.close()

    asyncio.run(fill())
    return {
        "servers": f"tls://{where}",
        "user": "analyst",
        "password": _SECRET,
        "tlsCa": str(tls / "authority.pem"),
    }


def hosts(options: dict[str, str]) -> set[str]:
    return {row["host"] for row in rows_of("", **options)}


def test_a_user_with_the_least_rights_reads_by_a_password_in_a_file(
    guarded: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{_SECRET}\n")
    del guarded["password"]

    assert hosts(guarded | {"passwordFile": str(secret)}) == {"web01", "web02"}


def test_who_is_refused_is_told_so_without_the_password(guarded: dict[str, str]) -> None:
    with pytest.raises(OperatorError, match="refuses user 'analyst'") as refused:
        hosts(guarded | {"password": "wr0ng"})
    assert "wr0ng" not in str(refused.value)

    with pytest.raises(OperatorError, match=r"permissions violation .*STREAM\.INFO\.OTHER"):
        hosts(guarded | {"stream": "OTHER"})


def test_the_readme_names_these_rights() -> None:
    assert all(right in PAGE for right in RIGHTS)
