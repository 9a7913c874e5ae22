"""The messages that a page shows are those that the programs say."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from broker.inspect.checks import judge
from broker.inspect.status import BrokerStatus
from nats_logship.app.exits import Exit
from nats_logship.client.nkey import new_seed, user_key
from tests.broker.inspect.test_status import a_status, altered
from tests.docs.commands import blocks
from tests.docs.option_tables import DOCS
from tests.support import forks
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.suite import start_nats_server

pytestmark = pytest.mark.nats

HOST = "host-web01.toml"


def test_a_page_shows_the_messages_of_the_programs(
    tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("store").mkdir()
    Path("app.log").write_text("a line\n")
    Path("shipper.toml").write_text('fiel = "app.log"\n')
    port = free_port()
    address = ("--server", f"nats://127.0.0.1:{port}")
    says("logbroker", "credentials", "add", "host", "web01", "--store-dir", "store", *address)
    ship = ("logshipper", "--file", "app.log", "--once", "--patience", "0s")

    said = [
        *says(*ship, "--host", "localhost", *address),
        *says("logreceiver", "status", "--config", HOST),
        *says(*ship, "--config", "shipper.toml"),
        *says("logbroker", "statsu"),
        *says("logbroker", "credentials", "add", "host", "x", "--store-dir", "/var/lib/logborker"),
        *(found.text for found in judge(["receivers"], without_a_receiver())),
    ]
    start_server(processes, port)
    Path(HOST).chmod(0o644)
    said += says(*ship, "--config", HOST)

    (shown,) = blocks((DOCS / "operations.md").read_text("utf-8"), "text")
    known = "\n".join(said).replace(f":{port}", ":4222").replace(f"{tmp_path}/", "")
    assert [line for line in shown.splitlines() if line not in known.splitlines()] == []


def test_the_commands_that_messages_name_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is run as it is, without a broker: it may fail, but not for its arguments."""
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for program in ("LOGBROKER", "LOGRECEIVER", "LOGSHIPPER"):
        monkeypatch.setenv(f"{program}_SERVER", f"nats://127.0.0.1:{free_port()}")
    found = {one for name in ("receiver", "shipper", "nats_logship") for one in named_in(name)}

    for program, words in found:
        ended = forks.run(program, *words.replace("DIR", "file").replace("NAME", "web01").split())
        assert ended.returncode != Exit.USAGE, (program, words, ended.stderr)
    assert ("logbroker", "run --store-dir DIR") in found


def named_in(package: str) -> Iterator[tuple[str, str]]:
    """Yield program and arguments of each command that a text of a package asks a reader to run.

    Not those of documentation, and of one that goes on in another text only what is in this one.
    """
    for path in Path(import_module(package).__path__[0]).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        documentation = [node.value for node in nodes if isinstance(node, ast.Expr)]
        for node in nodes:
            if isinstance(node, ast.Constant | ast.JoinedStr) and node not in documentation:
                text = ast.unparse(node).replace("{needed}", "host")
                yield from re.findall(r"(?:run|with|all:|'s:) `(log\w+) ([^`{]*)`", text)


def says(program: str, *arguments: str) -> list[str]:
    """Return the messages of a program, without its name, a level and a part of it before them."""
    lines = forks.run(program, *arguments).stderr.splitlines()
    return [line.partition(": ")[2] for line in lines]


def without_a_receiver() -> BrokerStatus:
    first, second = a_status().partitions
    receiver = {"running": False, "missing_seconds": 75.0}
    gone = altered(second, partition=3, owner="central01:4711", released=True, receiver=receiver)
    return a_status(partitions=(first, gone), current_partitions=4)


def start_server(processes: Processes, port: int) -> None:
    path, key = Path("server.conf"), user_key(new_seed()).public
    users = f"authorization {{ users: [ {{ nkey: {key} }} ] }}"
    path.write_text(f"listen: 127.0.0.1:{port}\n{users}\n")
    start_nats_server(processes, "server", path)
