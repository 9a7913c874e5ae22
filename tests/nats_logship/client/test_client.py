"""The wire of the client: messages are cut out of what was read, wherever it was cut on its way; what is sent is whole when a flush is over, and waits where nobody reads."""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator

import pytest
from nats.errors import ProtocolError

from nats_logship.client.access import Access
from nats_logship.client.answer import ConnectionLost
from nats_logship.client.client import DIRECT_BYTES, BrokerClient
from nats_logship.client.connection import Connection, Message
from nats_logship.client.credentials import ClientCredentials
from nats_logship.wire.delivery import RawMessage

BLOCK = os.urandom(256 * 1024)
HEAD = b"NATS/1.0\r\nLog-Agent: a: b\r\nLog-Read-At: 2\r\n\r\n"


def wire(head: bytes, data: bytes, reply: bytes = b"") -> bytes:
    # for messages of its own nats-server writes two blanks where there is no reply
    words = [b"HMSG" if head else b"MSG", b"logs.p0.a", b"1", *([reply] if reply or head else [])]
    sizes = [b"%d" % len(head)] if head else []
    return b" ".join([*words, *sizes, b"%d" % len(head + data)]) + b"\r\n" + head + data + b"\r\n"


class Heard(BrokerClient):
    """A client that was never connected, and remembers what came."""

    def __init__(self) -> None:
        super().__init__("nats://nowhere", Access(), ClientCredentials())
        self.messages: list[RawMessage] = []
        self.pings = 0
        self.taps[1] = self.messages.append

    async def _process_ping(self) -> None:
        self.pings += 1


async def test_messages_are_whole_wherever_the_line_was_cut() -> None:
    chance = random.Random(7)
    sent = []
    for number in range(60):
        data = chance.choice([b"", b"\r\n", b"PING\r\n", chance.randbytes(chance.randrange(3000))])
        head = chance.choice([b"", HEAD])
        sent.append(RawMessage("logs.p0.a", chance.choice(["", f"r.{number}"]), head, data))
    text = b"PING\r\n".join(wire(m.head, m.data, m.reply.encode()) for m in sent)

    for most in (1, 2, 7, 400, 5_000, len(text)):
        client, at = Heard(), 0
        while at < len(text):
            step = chance.randint(1, most)
            await client._ps.parse(text[at : at + step])
            at += step
        assert client.messages == sent
        assert client.pings == len(sent) - 1


@pytest.mark.parametrize("text", [b"MSG a 1 x\r\n", b"HMSG a 1 1 1 x\r\n", b"NONSENSE\r\n"])
async def test_nonsense_ends_the_line(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        await Heard()._ps.parse(text)


@pytest.mark.parametrize(
    ("head", "headers"),
    [
        (b"", None),
        (b"NATS/1.0\r\n\r\n", None),
        (HEAD, {"Log-Agent": "a: b", "Log-Read-At": "2"}),
        (b"NATS/1.0 404\r\n\r\n", {"Status": "404", "Description": ""}),
        (
            b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nA:b\r\n\r\n",
            {"Status": "409", "Description": "Message Size Exceeds MaxBytes", "A": "b"},
        ),
        (b"NATS/1.0\r\nno colon\r\n\xff: x\r\ntwo words: x\r\nA: \xff \r\n\r\n", {"A": "\ufffd"}),
    ],
)
def test_headers_are_read_as_others_read_them(head: bytes, headers: dict[str, str] | None) -> None:
    assert RawMessage("a", "", head, b"").headers == headers


SPACES = "\x0b\x0c\x1c\x85\xa0"  # which the protocol does not take for the end of a word


async def test_taps_and_subscriptions_hear_all_in_order_on_odd_subjects_too(
    connection: Connection,
) -> None:
    subject, tapped = f"odd.a{SPACES}b", list[RawMessage]()
    heard: asyncio.Queue[Message] = asyncio.Queue()
    tap = await connection.tap("odd.*", tapped.append)
    await connection.subscribe("odd.*", heard.put)
    sizes = [0, 1, DIRECT_BYTES - 1, DIRECT_BYTES, 5, 300_000, 2, 800_000, 3] * 4

    for number, size in enumerate(sizes):
        headers = {"Number": str(number)} if number % 4 else None
        await connection.publish(subject, b"%d" % number + b"x" * size, headers=headers)
    async with asyncio.timeout(60):
        messages = [await heard.get() for _ in sizes]

    assert [(m.data, m.headers, m.subject) for m in messages] == [
        (m.data, m.headers, m.subject) for m in tapped
    ]
    assert [m.data for m in tapped] == [b"%d" % n + b"x" * s for n, s in enumerate(sizes)]
    assert {m.subject for m in tapped} == {subject}
    await tap.unsubscribe()
    assert not (await connection.client()).taps


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Connection, socket.socket]]:
    """Return both ends of a line: a connection, and a server that does what the test does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection([f"nats://127.0.0.1:{server.getsockname()[1]}"], "test")
        greeting = asyncio.create_task(asyncio.to_thread(greet, server))
        await connection.once(5)
        line = await greeting
        yield connection, line
        line.close()
        await connection.close()


async def test_a_flush_is_over_when_all_before_it_has_been_read(
    ends: tuple[Connection, socket.socket],
) -> None:
    connection, line = ends
    answering = asyncio.create_task(asyncio.to_thread(answer_ping, line))
    await connection.publish("elsewhere", b"a line")
    await (await connection.client()).flush()

    assert b"a line" in await answering


async def test_a_header_cannot_break_out_of_its_line(connection: Connection) -> None:
    with pytest.raises(ValueError, match="line break"):
        await connection.publish("elsewhere", BLOCK, headers={"A": "b\r\nC: d"})


async def test_a_line_that_nobody_reads_holds_back_the_sender_and_not_its_memory(
    ends: tuple[Connection, socket.socket],
) -> None:
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
    line.sendall(b'INFO {"server_id":"x","max_payload":8388608,"headers":true}\r\n')
    answer_ping(line)
    return line


def answer_ping(line: socket.socket) -> bytes:
    """Return what has come before it."""
    heard = b""
    while b"PING" not in heard:
        heard += line.recv(4096)
    line.sendall(b"PONG\r\n")
    return heard.partition(b"PING")[0]
