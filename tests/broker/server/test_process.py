"""nats-server as a child process: no text of a client passes for a line of the server."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from broker.server.health import find_failed_write
from broker.server.process import (
    NatsServer,
    add_names,
    explain_end,
    find_nats_server,
    parse_log_line,
    run_nats_server,
)
from nats_logship.app.exits import OperatorError
from tests.secured import key_of

PHRASES = (
    "Reloaded server configuration",
    "Failed to reload server configuration: of a client",
    "  Error decrypting our stream metafile: of a client",
    "Closing existing clients",
    "Listening for client connections on 127.0.0.1:1",
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
        'listen: "127.0.0.1:-1"\nlogtime: false\n'
        'accounts { A { users: [ { user: "a", password: "a" } ] } }\n',
        "utf-8",
    )
    return path


@asynccontextmanager
async def attended(conf: Path) -> AsyncIterator[tuple[NatsServer, int, "asyncio.Future[None]"]]:
    """Run a server: gives it, its port, and what ends when it does."""
    lock = os.open(conf.parent, os.O_RDONLY)
    try:
        async with run_nats_server(find_nats_server(), conf, 10**8, lock, {}) as server:
            attending = asyncio.ensure_future(server.attend())
            ports = await server.wait_for_ports()
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
    """Send a text in each field that nats-server logs, without a credential."""
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
async def test_no_text_of_a_client_is_taken_for_the_servers(conf: Path) -> None:
    async with asyncio.timeout(60), attended(conf) as (server, port, attending):
        for text in INJECTED:
            for speak in (spoken, spoken_with_credential):
                client = connected(port)
                speak(client, text)
                hung_up(client)
        with broken(conf), pytest.raises(OperatorError, match="no_such_setting"):
            await reloaded_among(server, port, "Reloaded server configuration")
        await reloaded_among(server, port, "Failed to reload server configuration: no")

        assert (await server.wait_for_ports()).client == port  # nor is the store encrypted

        client = connected(port)
        spoken(client, "listen tcp 9.9.9.9:99: bind: address already in use")
        hung_up(client)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(OperatorError) as ended:
            await attending
    assert "killed by SIGKILL" in str(ended.value)
    assert "9.9.9.9" not in str(ended.value)


@contextmanager
def broken(conf: Path) -> Iterator[None]:
    good = conf.read_text("utf-8")
    conf.write_text(good + "no_such_setting: 1\n", "utf-8")
    yield
    conf.write_text(good, "utf-8")


async def reloaded_among(server: NatsServer, port: int, text: str) -> None:
    """Reload while clients send a text; the server is stopped until both are waiting."""
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


def test_the_last_error_explains_an_end_in_one_line() -> None:
    lines = ["[7] [INF] Server is ready", "", "goroutine 1 [running]:", "[7] [WRN] slow"]
    assert explain_end(map(parse_log_line, lines)) == ""

    for last, reason in (
        ("[7] 2026/11/20 19:00:00.1 [ERR] bad", "bad"),
        ("panic: runtime error", "panic: runtime error"),
        ("[7] [FTL] a\x1b[2Kb\r\u202ec", r"a\x1b[2Kb\r\u202ec"),
    ):
        assert explain_end(map(parse_log_line, ["[7] [ERR] first", last, *lines])) == reason


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("[ERR] Error trying to connect to route (attempt 1): dial tcp", logging.INFO),
        ("[ERR] Error trying to connect to route (attempt 61): dial tcp", logging.ERROR),
        ("[WRN] JetStream has not established contact with a meta leader", logging.INFO),
        ('[ERR] Address "0.0.0.0" can not be resolved properly', logging.INFO),
        ("[ERR] 1:2 - cid:5 - Waiting for routing to be established", logging.ERROR),
    ],
)
def test_what_every_start_logs_is_no_error(line: str, level: int) -> None:
    assert parse_log_line(f"[7] {line}").level == level


KNOWN = {key_of("web01"): "host web01"}
OF_WEB01 = f'"SHIP/nkey:{key_of("web01")}" - '
TRIED = 'Publish Violation - Subject "logs.p0.other"'


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f'1:2 - cid:5 - "v2:go:me" - {OF_WEB01}{TRIED}', f'"v2:go:me" - host web01 - {TRIED}'),
        (f'1:2 - lid:5 - "" - {OF_WEB01}x', '1:2 - lid:5 - "" - host web01 - x'),
        (
            f'1:2 - cid:5 - authentication error - Nkey "{key_of("web01")}"',
            "1:2 - cid:5 - authentication error - with the public key of host web01",
        ),
        (f"1:2 - cid:5 - {OF_WEB01}{TRIED}", f"1:2 - cid:5 - host web01 - {TRIED}"),
        # what a client has chosen
        (f'1:2 - cid:5 - {OF_WEB01}"A/user:u" - {TRIED}', None),
        (f'1:2 - cid:5 - {OF_WEB01}"SHIP/nkey:{key_of("x")}" - {TRIED}', None),
        (f'1:2 - cid:5 - "a\\" - \\{OF_WEB01[:-4]}\\" - x" - "SHIP/nkey:{key_of("x")}" - y', None),
        (f'1:2 - cid:5 - "a" - "A/user:u" - Publish Violation - Subject "b" - {OF_WEB01}x', None),
        (f'1:2 - cid:5 - authentication error - User "Nkey {key_of("web01")}"', None),
        (f'Client parser error: "1:2 - cid:5 - a - {OF_WEB01}x', None),
        # a key that is no credential's
        (f'1:2 - cid:5 - "a" - "SHIP/nkey:{key_of("x")}" - {TRIED}', None),
    ],
)
def test_the_log_names_a_credential_where_the_server_wrote_its_key(
    line: str, shown: str | None
) -> None:
    found = add_names(line, KNOWN)

    assert found.endswith(shown or line)
    assert ("host web01" in found) == (shown is not None)


FULL = "JetStream stream 'LOGS > LOGS' write error: write /s/4.blk: no space left on device"
WRITE = "write /s/4.blk: no space left on device"


@pytest.mark.parametrize(
    ("data", "frozen"),
    [
        ({"status": "ok"}, ""),
        ({"status": "error", "error": "JetStream is not current"}, ""),
        ({"status": "unavailable", "error": FULL}, WRITE),
        ({"error": "JetStream not enabled (10076)"}, "JetStream not enabled"),  # one of three
        ({"errors": [{"error": "lags"}, {"error": FULL}]}, WRITE),
        (2, ""),
        ([], ""),
        ({}, ""),
    ],
)
def test_a_failed_write_is_distinguished_from_other_errors(data: Any, frozen: str) -> None:
    assert find_failed_write(json.dumps({"data": data}).encode()) == frozen
