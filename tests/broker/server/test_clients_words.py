"""What clients have a real nats-server write into its log is never taken for what the server says."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from broker.app.exits import OperatorError
from broker.server.process import NatsServer, started

pytestmark = pytest.mark.nats

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


async def test_a_client_gives_no_reason_for_the_servers_end(conf: Path) -> None:
    async with asyncio.timeout(60), attended(conf) as (server, port, attending):
        client = connected(port)
        spoken(client, "listen tcp 9.9.9.9:99: bind: address already in use")
        hung_up(client)
        os.kill(server.pid, signal.SIGKILL)

        with pytest.raises(OperatorError) as ended:
            await attending

    assert str(ended.value) == "nats-server ended (killed by SIGKILL)"
