"""What the tests of looking share: a stream with a few hosts' lines in it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import zstandard
from faker import Faker

from broker.block import Origin, Span, encode_origin
from broker.connecting.connection import Connection

NOW = 1_790_000_000_000_000_000  # when shippers say that they read a block, in nanoseconds

Publish = Callable[..., Awaitable[int]]


@pytest.fixture
async def connection(logs_url: str) -> AsyncIterator[Connection]:
    connection = Connection([logs_url], "test")
    await connection.once()
    yield connection
    await connection.close()


@pytest.fixture
def log_lines() -> Callable[[int], bytes]:
    """Return believable lines, each different from all others."""
    fake = Faker()
    fake.seed_instance(5)
    return lambda number: "".join(
        f"{fake.date_time().isoformat()} {fake.user_name()} {fake.uri_path()} {n}\n"
        for n in range(number)
    ).encode()


def block(
    lines: bytes, file: str = "/var/log/app.log", compressed: bool = False, agent: str = "agent-1"
) -> tuple[bytes, dict[str, str]]:
    """Return payload and headers as a shipper sends them."""
    origin = Origin(
        agent,
        file,
        Span(f"id{file}", 0, len(lines)),
        None,
        lines.count(b"\n"),
        NOW,
        compressed,
    )
    payload = zstandard.ZstdCompressor().compress(lines) if compressed else lines
    return payload, encode_origin(origin)


@pytest.fixture
def publish(connection: Connection) -> Publish:
    async def one(host: str, lines: bytes, partition: int = 0, **how: object) -> int:
        payload, headers = block(lines, **how)  # type: ignore[arg-type]
        answer = await connection.ask(f"logs.p{partition}.{host}", payload, headers)
        return int(answer["seq"])

    return one
