"""What becomes of a broker while an agent runs: not there, emptied, smaller, forgetful. Lines wait, and come once."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.publish.rounds import Round
from tests.shipper.logs import ReadBack, Ship, says
from tests.shipper.publish.agents import PublishingAgent
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    return log


@pytest.fixture
def ship(ship: Ship, log: Path) -> Ship:
    return lambda url, *options: ship(url, "--file", log, *options)


def arrives(read_back: ReadBack, url: str, lines: bytes) -> None:
    wait_until("lines are there", lambda: len(read_back(url)) >= len(lines), 40)
    assert read_back(url) == lines


def test_a_broker_that_comes_later_than_the_agent_gets_every_line(
    own_server: Any, apply_logs: Callable[[str], None], read_back: ReadBack, ship: Ship
) -> None:
    own_server.stop()
    process = ship(own_server.url)
    says(process, "no broker at")
    own_server.start()
    says(process, "run `logbroker apply`")
    apply_logs(own_server.url)

    arrives(read_back, own_server.url, b"one\n")
    assert process.stop(10) == 0


def test_a_payload_limit_that_falls_divides_rounds_and_cuts_long_lines_smaller(
    own_server: Any,
    apply_logs: Callable[[str], None],
    read_back: ReadBack,
    ship: Ship,
    log: Path,
    tmp_path: Path,
) -> None:
    apply_logs(own_server.url)
    process = ship(own_server.url, "--compression", "none", "--max-line", "2MiB")
    arrives(read_back, own_server.url, b"one\n")
    own_server.stop()
    configuration = tmp_path / "own-server/nats-server.conf"
    configuration.write_text(configuration.read_text().replace("8MB", "256KB"))
    lines = (
        b"".join(b"%07d %s\n" % (n, b"x" * 1000) for n in range(2000)) + b"y" * 1_500_000 + b"\n"
    )
    with log.open("ab") as file:
        file.write(lines)
    # one round was gathered by the old limit by now
    says(process, "broker away")
    own_server.start()

    arrives(read_back, own_server.url, b"one\n" + lines)
    assert process.stop(10) == 0


Stream = Callable[[], Awaitable[list[Any]]]
Make = Callable[..., Round]


def test_a_stream_that_takes_smaller_messages_than_the_server_gets_smaller_ones(
    logs_url: str, read_back: ReadBack, ship: Ship, log: Path
) -> None:
    async def limit() -> None:
        connection = Connection([logs_url], "test")
        config = (await connection.api("STREAM.INFO.LOGS"))["config"]
        await connection.api("STREAM.UPDATE.LOGS", {**config, "max_msg_size": 50_000})
        await connection.close()

    process = ship(logs_url)
    arrives(read_back, logs_url, b"one\n")
    asyncio.run(limit())
    lines = b"".join(random.Random(n).randbytes(50).hex().encode() + b"\n" for n in range(20_000))
    with log.open("ab") as file:
        file.write(lines)

    arrives(read_back, logs_url, b"one\n" + lines)
    assert process.stop(10) == 0


@pytest.fixture
def small(own_server: Any, apply_logs: Callable[[str], None], tmp_path: Path) -> str:
    """Return the address of a broker that takes messages of 64 KB at most."""
    own_server.stop()
    configuration = tmp_path / "own-server/nats-server.conf"
    configuration.write_text(configuration.read_text().replace("8MB", "64KB"))
    own_server.start()
    apply_logs(own_server.url)
    return str(own_server.url)


async def test_a_stream_that_is_deleted_is_waited_for_and_goes_on_when_it_is_made_again(
    connection: Connection, web01: Subject, make_round: Make, stream: Stream
) -> None:
    publisher = await PublishingAgent(connection).open()
    agent = str(publisher.agent)
    await publisher.publish(make_round(agent, 0, b"one\n"))
    config = (await connection.api("STREAM.INFO.LOGS"))["config"]
    await connection.api("STREAM.DELETE.LOGS")

    publishing = asyncio.create_task(publisher.publish(make_round(agent, 4, b"two\nthree\n")))
    await asyncio.sleep(0.3)
    assert not publishing.done()
    await connection.api("STREAM.CREATE.LOGS", config)
    await publishing

    assert b"".join(message.lines for message in await stream()) == b"two\nthree\n"


def test_a_snapshot_that_the_broker_does_not_take_is_named(
    small: str, ship: Ship, tmp_path: Path
) -> None:
    for number in range(2000):
        name = random.Random(number).randbytes(60).hex()  # no compression makes it shorter
        (tmp_path / f"{name}.log").write_bytes(b"%d\n" % number)

    process = ship(small, "--file", str(tmp_path / "*.log"))

    says(process, "larger than the broker takes")
    assert process.stop(10) == 0
