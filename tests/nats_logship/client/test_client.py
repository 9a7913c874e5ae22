"""A client over a real socket: reading, sending, and the end of the connection."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.client import DIRECT_BYTES
from nats_logship.client.connection import BrokerAway, Connection, Message
from nats_logship.client.parser import MAX_LINE
from nats_logship.wire.delivery import RawMessage
from tests.nats_logship.client.served import INFO, served

BLOCK = os.urandom(256 * 1024)
HEAD = b"NATS/1.0\r\nLog-Agent: a: b\r\nLog-Read-At: 2\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "headers"),
    [
        (b"", None),
        (b"NATS/1.0\r\n\r\n", None),
        (HEAD, {"Log-Agent": "a: b", "Log-Read-At": "2"}),
        (b"NATS/1.0 404\r\n\r\n", {"Status": "404", "Description": ""}),
        (
            b"NATS/1.0 409 Too Large\r\nA:b\r\n\r\n",
            {"Status": "409", "Description": "Too Large", "A": "b"},
        ),
        (b"NATS/1.0\r\nno colon\r\n\xff: x\r\ntwo words: x\r\nA: \xff \r\n\r\n", {"A": "\ufffd"}),
    ],
)
def test_headers_are_read(head: bytes, headers: dict[str, str] | None) -> None:
    assert RawMessage("a", "", head, b"").headers == headers


SPACES = "\x0b\x0c\x1c\x85\xa0"  # which the protocol does not take for the end of a word


async def test_taps_and_subscriptions_receive_all_messages_in_order(connection: Connection) -> None:
    subject, tapped = f"odd.a{SPACES}b", list[RawMessage]()
    received: asyncio.Queue[Message] = asyncio.Queue()
    tap = await connection.tap("odd.*", tapped.append)
    await connection.subscribe("odd.*", received.put)
    sizes = [0, 1, DIRECT_BYTES - 1, DIRECT_BYTES, 5, 300_000, 2, 800_000, 3] * 4

    for number, size in enumerate(sizes):
        headers = {"Number": str(number)} if number % 4 else None
        await connection.publish(subject, b"%d" % number + b"x" * size, headers=headers)
    async with asyncio.timeout(60):
        messages = [await received.get() for _ in sizes]

    assert [(m.data, m.headers, m.subject) for m in messages] == [
        (m.data, m.headers, m.subject) for m in tapped
    ]
    assert [m.data for m in tapped] == [b"%d" % n + b"x" * s for n, s in enumerate(sizes)]
    assert {m.subject for m in tapped} == {subject}
    await tap.unsubscribe()
    assert not (await connection.client()).taps


Ends = tuple[Connection, socket.socket]
"""Both ends of a line: a connection, and a server that does what the test does."""


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection([f"nats://127.0.0.1:{server.getsockname()[1]}"], "test")
        greeting = asyncio.create_task(asyncio.to_thread(greet, server))
        await connection.connect(30)
        line = await greeting
        yield connection, line
        line.close()
        await connection.close()


async def test_a_message_after_unexpected_lines_is_received(ends: Ends) -> None:
    connection, line = ends
    tapped = asyncio.get_running_loop().create_future()
    await connection.tap("a", tapped.set_result)
    # of subscriptions that have ended, one subject no UTF-8, and an error that ends nothing
    line.sendall(b"MSG b 99 1\r\nx\r\nMSG \xff 99 1\r\nx\r\n+OK\r\nINFO {}\r\n")
    line.sendall(b"-ERR 'Permissions Violation for Publish to \"\xff\"'\r\n")
    line.sendall(b"HMSG a 1 \xff.r %d %d\r\n%bab\r\n" % (len(HEAD), len(HEAD) + 2, HEAD))
    async with asyncio.timeout(10):
        message = await tapped

    assert message == RawMessage("a", "\udcff.r", HEAD, b"ab")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"NONSENSE\r\n", "no operation"),
        (b"MSG a 1 99999999\r\n", "impossible size"),
        (b"HMSG a 1 5 4\r\nabcd\r\n", "impossible size"),
        (b"MSG a 1 2\r\nabc\r\n", "longer than it says"),
        (b"INFO " + b"x" * MAX_LINE, "more than"),
        (b"INFO x\r\n", "Expecting value"),
        (b"INFO 1\r\n", "not iterable"),
        (b'INFO {"connect_urls": 1}\r\n', "not iterable"),
        (b"INFO " + b"[" * 50_000 + b"\r\n", "recursion"),
        (b"-ERR 'Unknown Protocol Operation'\r\n", "unknown protocol operation"),
        (b"", "EOF"),
    ],
)
async def test_an_unreadable_line_ends_the_connection_with_a_reason(
    ends: Ends, sent: bytes, reason: str
) -> None:
    connection, line = ends
    client = await connection.client()
    waiting = asyncio.ensure_future(connection.guard(asyncio.sleep(60), 60))
    await asyncio.to_thread(line.sendall, sent)
    if not sent:
        line.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionLost, match=rf"connection lost: .*{reason}"):
        await waiting
    assert not connection.is_current(client)


@pytest.mark.parametrize("info", [b"[]", b"1", b"{", b"x" * MAX_LINE, b"[" * 20_000])
async def test_a_server_with_an_unreadable_first_line_is_no_broker(info: bytes) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + info + b"\r\n")
        await writer.drain()

    async with served(serve) as where:
        with pytest.raises(BrokerAway, match=r"not as a broker: .*(INFO|info)"):
            await Connection([f"nats://{where}"], "test").connect()


CHANGES = """
import importlib, inspect, pkgutil, sys
import nats

for module in pkgutil.walk_packages(nats.__path__, "nats."):
    try:
        importlib.import_module(module.name)
    except ImportError:  # it needs a package that is not installed
        sys.modules.pop(module.name, None)
names = sorted(name for name in sys.modules if name == "nats" or name.startswith("nats."))
owners = {name: sys.modules[name] for name in names}
for name in names:
    for value in list(vars(owners[name]).values()):
        if inspect.isclass(value) and value.__module__.split(".")[0] == "nats":
            owners[f"{value.__module__}.{value.__qualname__}"] = value
assert "nats.aio.client.Client" in owners and "nats.protocol.parser" in owners
before = {name: dict(vars(owner)) for name, owner in owners.items()}

import nats_logship.client.connection

for name, owner in owners.items():
    after, was = dict(vars(owner)), before[name]
    for key in was.keys() | after.keys():
        if not (key in was and key in after and was[key] is after[key]):
            print(f"{name}.{key}")
"""


def test_importing_the_connection_changes_nothing_in_nats_py() -> None:
    command = [sys.executable, "-P", "-c", CHANGES]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout == ""


async def test_a_flush_ends_after_all_earlier_messages_were_read(ends: Ends) -> None:
    connection, line = ends
    answering = asyncio.create_task(asyncio.to_thread(answer_ping, line))
    await connection.publish("elsewhere", b"a line")
    await (await connection.client()).flush()

    assert b"a line" in await answering


@pytest.mark.parametrize("payload", [b"small", BLOCK], ids=["small", "large"])
async def test_a_line_break_in_a_header_does_not_begin_another(
    connection: Connection, payload: bytes
) -> None:
    received: asyncio.Queue[Message] = asyncio.Queue()
    await connection.subscribe("elsewhere", received.put)

    await connection.publish("elsewhere", payload, headers={"A": "b\r\nC: d"})

    assert (await received.get()).headers == {"A": "b  C: d"}
    with pytest.raises(ValueError, match="line break"):
        await connection.publish("elsewhere", payload, headers={"A: b\r\nC": "d"})


async def test_a_server_that_reads_nothing_blocks_the_sender_in_bounded_memory(ends: Ends) -> None:
    connection, _ = ends
    client = await connection.client()

    async def publish() -> None:
        for _ in range(1000):
            await connection.publish("elsewhere", BLOCK, headers={"A": "b"})

    with pytest.raises(ConnectionLost):
        await connection.guard(publish(), 0.5)

    # what fits into the two ends' sockets, and not a byte of the rest
    assert client.stats["out_bytes"] < 100 * len(BLOCK)


def greet(deaf: socket.socket) -> socket.socket:
    line, _ = deaf.accept()
    line.sendall(INFO)
    answer_ping(line)
    return line


def answer_ping(line: socket.socket) -> bytes:
    """Return what has come before it."""
    received = b""
    while b"PING" not in received:
        received += line.recv(4096)
    line.sendall(b"PONG\r\n")
    return received.partition(b"PING")[0]
