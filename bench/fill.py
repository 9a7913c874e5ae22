"""Fills the stream as fast as the broker stores: prepared messages over a bare socket.

What agents would have shipped is there in seconds, with their headers; only the lines' way onwards
is to be measured.
"""

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import zstandard

from bench.backlog import LINE_BYTES, backlog
from bench.trial import Case, Outcome
from nats_logship.wire.message import Origin, Section, Span, encode_origin
from nats_logship.wire.subjects import Subject

BLOCK_LINES = 256 * 1024 // LINE_BYTES
"""Lines of a full block."""

_AT_A_TIME = 4 * 1024 * 1024  # bytes
_MOST = 300  # messages at a time; the broker refuses more when it is busy


@dataclass(frozen=True, slots=True)
class Sent:
    """A message to store: its host and lines, and its bytes on the wire: headers, payload."""

    host: str
    lines: bytes
    headers: bytes
    payload: bytes


def backlog_cases(measure: Callable[..., Outcome], megabytes: Iterable[int]) -> list[Case]:
    """Return a case for each size of a stream; `measure` also gets how many lines that is."""
    return [
        Case(
            f"{number:,} MB",
            {"megabytes": number, "line_bytes": LINE_BYTES},
            partial(measure, lines=number * 1_000_000 // LINE_BYTES),
        )
        for number in megabytes
    ]


def blocks(lines: int, hosts: int, per_block: int, compressed: bool = False) -> Iterator[Sent]:
    """Yield `lines` lines in blocks as shippers make them, a file on each of `hosts` hosts."""
    squeeze = zstandard.ZstdCompressor(level=1).compress if compressed else bytes
    ends = [0] * hosts
    for number, lump in enumerate(_lumps(lines, per_block)):
        host = number % hosts
        start, ends[host] = ends[host], ends[host] + len(lump)
        span = Span("1-1", start, ends[host])
        section = Section("/var/log/app.log", span, len(lump), len(lump) // LINE_BYTES)
        origin = Origin("1-00000001", 1_790_000_000_000_000_000, (section,), compressed)
        headers = "".join(f"{name}: {value}\r\n" for name, value in encode_origin(origin).items())
        yield Sent(_name(host), lump, headers.encode(), squeeze(lump))


def _lumps(lines: int, per_block: int) -> Iterator[bytes]:
    size = per_block * LINE_BYTES
    rest = b""
    for part in backlog(lines):
        rest += part
        whole = len(rest) - len(rest) % size
        yield from (rest[at : at + size] for at in range(0, whole, size))
        rest = rest[whole:]
    if rest:
        yield rest


def _name(host: int) -> str:
    return f"host{host:04}"


def fill(port: int, messages: Iterable[Sent]) -> None:
    """Make and store messages of a partition through the broker at a loopback port; as `store`."""
    store(port, on_the_wire(messages))


def on_the_wire(messages: Iterable[Sent], partitions: int = 1) -> Iterator[bytes]:
    """Yield the bytes of messages for a broker of so many partitions, many messages at a time."""
    waiting = iter(messages)
    while some := _take(waiting):
        yield b"".join(_commands(some, partitions))


def store(port: int, parts: Iterable[bytes]) -> None:
    """Send the parts that `on_the_wire` made, each when the broker has stored the one before.

    Returns when all are. Raises ConnectionError with the broker's arguments.
    """
    with socket.create_connection(("127.0.0.1", port)) as line:
        answers = line.makefile("rb")
        answers.readline()
        line.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        line.sendall(b"SUB fill 1\r\n")
        for part in parts:
            line.sendall(part)
            while not (answer := answers.readline()).startswith(b'{"'):
                if answer.startswith(b"-ERR") or not answer:
                    raise ConnectionError(answer.decode(errors="replace"))
            if b'"error"' in answer:
                raise ConnectionError(answer.decode(errors="replace"))


def _take(messages: Iterator[Sent]) -> list[Sent]:
    some: list[Sent] = []
    size = 0
    for message in islice(messages, _MOST):
        some.append(message)
        size += len(message.payload)
        if size >= _AT_A_TIME:
            break
    return some


def _commands(some: list[Sent], partitions: int) -> Iterator[bytes]:
    for number, message in enumerate(some, 1):
        head = b"NATS/1.0\r\n%s\r\n" % message.headers
        size = len(head) + len(message.payload)
        reply = "fill " if number == len(some) else ""  # the stream stores them one after the other
        subject = Subject.for_host(message.host, partitions)
        yield f"HPUB {subject} {reply}{len(head)} {size}\r\n".encode() + head
        yield message.payload
        yield b"\r\n"
