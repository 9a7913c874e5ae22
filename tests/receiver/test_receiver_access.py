"""A receiver of a broker that lets in nobody without a password, over TLS: its driver and its Spark tasks get in."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.access import Access
from broker.client.connection import Connection
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.nats, pytest.mark.timeout(900)]

_SECRET = "s3cret-of-the-receiver"


def test_driver_and_tasks_get_in_and_tell_nobody_the_password(
    processes: Processes, free_port: Callable[[], int], tls: Path, tmp_path: Path
) -> None:
    where, conf = f"127.0.0.1:{free_port()}", tmp_path / "server.conf"
    conf.write_text(
        f'listen: {where}\njetstream {{ store_dir: "{tmp_path}/store" }}\n'
        f'tls {{ cert_file: "{tls}/server.pem", key_file: "{tls}/server.key" }}\n'
        f'authorization {{ users: [ {{ user: "central", password: "{_SECRET}" }} ] }}\n'
    )
    programs = Path(sys.executable).parent
    server = processes.start("server", [programs / "nats-server", "-c", conf])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 60, [server])

    def run(program: str, *words: str) -> str:
        # relative to the folder that it starts in, which is not that of Spark's workers
        access = ("--server", where, "--tls-ca", "authority.pem", "--user", "central")
        secret = {"LOGBROKER_PASSWORD": _SECRET, "LOGRECEIVER_PASSWORD": _SECRET}
        done = processes.start(program, [programs / program, *words, *access], secret, tls)
        assert done.wait(300) == 0, done.last_words()
        return done.said()

    async def publish() -> None:
        access = Access(user="central", password=_SECRET, tls_ca=tls / "authority.pem")
        connection = Connection([f"tls://{where}"], "test", access=access)
        await connection.once()
        await connection.ask("logs.p0.web01", b"a line\n")
        await connection.close()

    run("logbroker", "apply", "--partitions", "1")
    asyncio.run(publish())
    output = tmp_path / "out"
    said = run("logreceiver", "--partition", "all", "--once", "--output", str(output))
    again = tmp_path / "again"
    said += run("logreceiver", "replay", "--since", "earliest", "--output", str(again))
    said += run("logreceiver", "verify", "--output", str(output))
    shown = run("logreceiver", "status")

    assert (output / "web01.log").read_bytes() == b"a line\n"
    assert (again / "web01.log").read_bytes() == b"a line\n"
    assert "all well: 1 hosts" in said
    files = [path for path in output.rglob("*") if path.is_file()]
    assert all(_SECRET.encode() not in path.read_bytes() for path in files)
    assert _SECRET not in said + shown
