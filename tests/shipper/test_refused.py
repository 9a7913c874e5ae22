"""An agent without a right reports that once, keeps its lines, and continues when it may."""

from pathlib import Path

import pytest

from nats_logship.wire.subjects import make_inbox
from tests.secured import Secured, host, start_secured, write_conf
from tests.shipper.conftest import wait_for_lines
from tests.shipper.logs import Ship, append, run, wait_for_log
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats

SECRET = "s3cret"


@pytest.fixture
def server(processes: Processes, tmp_path: Path) -> Secured:
    return start_secured(processes, tmp_path, host("web01"), host("Web02"))


def reload(server: Secured, right: str = "", other: str = "") -> None:
    """Have the server accept web01 by its secret, with one text of its rights replaced."""
    hosts = (host("web01"), host("Web02"))
    write_conf(server.conf, server.port, *hosts, leaf_port=server.leaf_port)
    written = server.conf.read_text().replace('"password": "web01"', f'"password": "{SECRET}"')
    server.conf.write_text(written.replace(right or "\0", other))
    times = server.read_log().count("Reloaded")
    server.process.hang_up()
    wait_until("reloads", lambda: server.read_log().count("Reloaded") > times, 30, [server.process])


def test_a_revoked_right_is_named_and_waited_for_and_loses_no_line(
    server: Secured, ship: Ship, log: Path
) -> None:
    inbox, (_, _, *prefixes) = make_inbox("web01"), server.options("web01")
    access = ("--user", "web01", "--password", SECRET, *prefixes)
    reload(server)
    process = ship(server.address, "--file", log, *access)
    wait_for_lines(server.url(), b"one\n", process)
    written = b"one\n"

    for right, other, complaint in (
        ('"user": "web01"', '"user": "another"', "refuses user 'web01'"),
        ('"logs.*.web01"', '"none"', 'permissions violation for publish to "logs.p'),
        (f'"{inbox}.>"', '"none"', f'permissions violation for subscription to "{inbox}'),
    ):
        reload(server, right, other)
        append(log, b"another\n")
        written += b"another\n"
        wait_for_log(process, complaint)
        if right == '"logs.*.web01"':
            options = ("--host", "web01", "--file", log, "--server", server.address)
            check = run("check", *options, *access)
        reload(server)
        wait_for_lines(server.url(), written, process)

    assert process.stop(10) == 0
    assert SECRET not in process.read_log()
    assert check.returncode == 1
    assert "BAD this user may not publish to logs.p" in check.stdout


def test_a_credential_of_another_host_is_reported_once(
    server: Secured, ship: Ship, log: Path, tmp_path: Path
) -> None:
    config = tmp_path / "host-Web02.toml"
    config.write_text('host = "Web02"\n')
    _, url, *options = server.options("Web02")
    once = ("--file", log, "--once", "--patience", "4s", "--config", config)
    cause = (
        "the credential is for host Web02, but --host is web01: "
        "use the credential of web01, or --host Web02"
    )

    given_up = ship(url, *once, *options)

    assert given_up.wait(60) == 1
    later = "; lines that are not acknowledged are shipped by the next run"
    waiting = f"WARNING publish: waiting: {cause}"
    assert given_up.read_log() == f"{waiting}\nlogshipper: gave up after 4 s: {cause}{later}"
