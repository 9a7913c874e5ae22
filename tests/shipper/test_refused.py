"""An agent that the broker refuses, or takes rights away from, says so once, keeps its lines, and goes on when it may."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.shipper.conftest import apply_logs, arrives
from tests.shipper.logs import Ship, run, says
from tests.support.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats

SECRET = "s3cret"
ALL = 'publish: ">"'
NOT_LOGS = 'publish: { allow: ["$JS.>", "$KV.>"] }'
DEAF = 'publish: ">", subscribe: { allow: ["none"] }'


@dataclass
class Guarded:
    """A nats-server that knows an administrator and, if it is told to, the user of a host."""

    port: int
    path: Path
    process: Process

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def admin(self) -> str:
        return f"nats://admin:admin@127.0.0.1:{self.port}"

    def lets_in(self, rights: str | None) -> None:
        """Reload it with a user of these rights, with None without the user."""
        configure(self.path, self.port, rights)
        said = self.process.said().count("Reloaded")
        self.process.hang_up()
        wait_until("reloads", lambda: self.process.said().count("Reloaded") > said, 30)


def configure(path: Path, port: int, rights: str | None) -> None:
    user = (
        ""
        if rights is None
        else f', {{ user: "web01", password: "{SECRET}", permissions: {{ {rights} }} }}'
    )
    path.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{path.parent}/guarded" }}\n'
        f'authorization {{ users: [ {{ user: "admin", password: "admin" }} {user} ] }}\n'
    )


@pytest.fixture
def guarded(
    processes: Processes,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Guarded:
    port, path = free_port(), tmp_path / "guarded.conf"
    configure(path, port, None)
    binary = Path(sys.executable).with_name("nats-server")
    server = processes.start("guarded", [binary, "-c", path])
    wait_until("is ready", lambda: "Server is ready" in server.said(), 40, [server])
    guarded = Guarded(port, path, server)
    apply_logs(guarded.admin)
    return guarded


@pytest.fixture
def ship(ship: Ship, log: Path, monkeypatch: pytest.MonkeyPatch) -> Ship:
    monkeypatch.setenv("LOGSHIPPER_PASSWORD", SECRET)
    return lambda url, *options: ship(url, "--user", "web01", "--file", log, *options)


@pytest.mark.parametrize(
    ("rights", "words"),
    [
        pytest.param(None, "refuses user 'web01'", id="user"),
        pytest.param(NOT_LOGS, 'permissions violation for publish to "logs.p', id="publish"),
        pytest.param(DEAF, 'permissions violation for subscription to "_INBOX.>"', id="answers"),
    ],
)
def test_a_right_that_is_taken_away_is_named_and_waited_for_and_costs_no_line(
    guarded: Guarded, ship: Ship, log: Path, rights: str | None, words: str
) -> None:
    guarded.lets_in(ALL)
    process = ship(guarded.url)
    arrives(guarded.admin, b"one\n")
    guarded.lets_in(rights)
    log.write_bytes(b"one\ntwo\n")
    says(process, words)
    guarded.lets_in(ALL)
    arrives(guarded.admin, b"one\ntwo\n")

    assert process.stop(10) == 0
    assert SECRET not in process.said()


def test_a_user_without_the_right_to_publish_is_told_by_check_before_it_tries(
    guarded: Guarded, log: Path
) -> None:
    guarded.lets_in('publish: { allow: ["$JS.>", "$KV.>", "$SYS.REQ.>"] }')
    words = ("--host", "web01", "--file", log, "--server", guarded.url, "--user", "web01")

    check = run("check", *words, "--password", SECRET)

    assert check.returncode == 1
    assert "BAD this user may not publish to logs.p" in check.stdout


def test_a_credential_of_another_host_is_called_that_once(
    guarded: Guarded, ship: Ship, tmp_path: Path
) -> None:
    (tmp_path / "host-Web02.toml").write_text('host = "Web02"\n')
    guarded.lets_in(DEAF)
    known = ("--config", str(tmp_path / "host-Web02.toml"))
    cause = (
        "the credential is for host Web02, but --host is web01: "
        "use the credential of web01, or --host Web02"
    )

    given_up = ship(guarded.url, "--once", "--patience", "4s", *known)
    assert given_up.wait(60) == 1
    later = "; what is not acknowledged will be shipped the next time"
    waiting = f"WARNING publish: waiting: {cause}"
    assert given_up.said() == f"{waiting}\nlogshipper: gave up after 4 s: {cause}{later}"
