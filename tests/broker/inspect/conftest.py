"""Messages as shippers send them, for the tests of inspection."""

import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

import pytest
import zstandard

from broker.inspect.tail import TailOptions, tail
from nats_logship.client.connection import Connection
from nats_logship.client.found_lines import FoundLines
from nats_logship.wire.message import Origin, Rest, Section, Span, encode_origin

NOW = 1_790_000_000_000_000_000  # the time of reading in all messages, in nanoseconds

START = "start:^[0-9]"
"""Records that begin with a digit."""

Publish = Callable[..., Awaitable[int]]


async def publish_piece(
    connection: Connection, lines: bytes, start: int, rest: Rest = "", records: str = START
) -> None:
    """Publish a part of a file of web01 that begins at a byte; its last record has a `rest`."""
    span = Span("f.1", start, start + len(lines))
    section = Section("/a", span, len(lines), lines.count(b"\n"), records=records, rest=rest)
    await connection.ask("logs.p0.web01", lines, encode_origin(Origin("1-a", 1, (section,))))


async def tail_lines(
    connection: Connection, wanted: TailOptions
) -> AsyncGenerator[FoundLines, None]:
    """Yield the lines that `tail` shows, one after the other."""
    async with aclosing(tail(connection, wanted)) as groups:
        async for found in groups:
            for one in found if isinstance(found, list) else ():
                yield one


def message(
    lines: bytes,
    file: str = "/var/log/app.log",
    compressed: bool = False,
    agent: str = "1-0000000a",
    more: tuple[tuple[str, bytes], ...] = (),
    records: str = "",
) -> tuple[bytes, dict[str, str]]:
    """Return payload and headers as a shipper sends them; `more` are other files and lines.

    The lines of all files form `records`.
    """
    parts = ((file, lines), *more)
    origin = Origin(agent, NOW, tuple(_section(*part, records) for part in parts), compressed)
    payload = b"".join(part for _, part in parts)
    return zstandard.compress(payload) if compressed else payload, encode_origin(origin)


def _section(path: str, lines: bytes, records: str) -> Section:
    file_id = f"1-{zlib.crc32(path.encode(errors='surrogateescape')):x}"
    span, count = Span(file_id, 0, len(lines)), lines.count(b"\n")
    return Section(path, span, len(lines), count, records=records)


@pytest.fixture
def publish(connection: Connection) -> Publish:
    async def one(host: str, lines: bytes, partition: int = 0, **how: object) -> int:
        payload, headers = message(lines, **how)  # type: ignore[arg-type]
        answer = await connection.ask(f"logs.p{partition}.{host}", payload, headers, 60)
        return int(answer["seq"])

    return one
