"""What becomes of a broker while an agent runs: not there, emptied, smaller, forgetful. Lines wait, and come once."""

import asyncio
import base64
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.wire.delivery import RawMessage
from tests.shipper.conftest import apply_logs, arrives
from tests.shipper.logs import Ship, append, says
from tests.shipper.publish.agents import Stored, config_of, round_of, start

pytestmark = pytest.mark.nats


@pytest.fixture
def ship(ship: Ship, log: Path) -> Ship:
    return lambda url, *options: ship(url, "--file", log, *options)


def test_a_broker_that_comes_later_than_the_agent_gets_every_line(
    own_server: Any, ship: Ship
) -> None:
    own_server.stop()
    process = ship(own_server.url)
    says(process, "no broker at")
    own_server.start()
    says(process, "run `logbroker apply`")
    apply_logs(own_server.url)

    arrives(own_server.url, b"one\n")
    assert process.stop(10) == 0


def test_a_payload_limit_that_falls_divides_rounds_and_cuts_long_lines_smaller(
    own_broker: Any, ship: Ship, log: Path, tmp_path: Path
) -> None:
    process = ship(own_broker.url, "--compression", "none", "--max-line", "2MiB")
    arrives(own_broker.url, b"one\n")
    own_broker.stop()
    take_at_a_time("256KB", tmp_path)
    lines = (
        b"".join(b"%07d %s\n" % (n, b"x" * 1000) for n in range(2000)) + b"y" * 1_500_000 + b"\n"
    )
    append(log, lines)
    # one round was gathered by the old limit by now
    says(process, "broker away")
    own_broker.start()

    arrives(own_broker.url, b"one\n" + lines)
    assert process.stop(10) == 0


def take_at_a_time(most: str, folder: Path) -> None:
    """Have the test's own server take smaller messages from its next start on."""
    configuration = folder / "own-server/nats-server.conf"
    configuration.write_text(configuration.read_text().replace("8MB", most))


def test_a_snapshot_that_the_broker_does_not_take_is_named(
    own_broker: Any, ship: Ship, tmp_path: Path
) -> None:
    own_broker.stop()
    take_at_a_time("64KB", tmp_path)
    own_broker.start()
    for number in range(2000):
        name = random.Random(number).randbytes(60).hex()  # no compression makes it shorter
        (tmp_path / f"{name}.log").write_bytes(b"%d\n" % number)

    process = ship(own_broker.url, "--file", str(tmp_path / "*.log"))

    says(process, "larger than the broker takes")
    assert process.stop(10) == 0


async def fill_up(connection: Connection) -> None:
    await connection.api("STREAM.UPDATE.LOGS", await config_of(connection) | {"max_bytes": 2000})


@pytest.mark.parametrize(
    ("spoil", "mend", "words", "kept"),
    [
        pytest.param(fill_up, "UPDATE", "the broker is full", 8, id="full"),
        pytest.param(
            lambda connection: connection.api("STREAM.DELETE.LOGS"),
            *("CREATE", "run `logbroker apply`", 7),
            id="deleted",
        ),
    ],
)
async def test_a_stream_that_takes_nothing_is_waited_for_and_goes_on_in_order(
    connection: Connection,
    stored: Stored,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Connection], Awaitable[object]],
    mend: str,
    words: str,
    kept: int,
) -> None:
    agent = await start(connection)
    rounds = [round_of(agent, n) for n in range(8)]
    await agent.publish(rounds[0])
    config = await config_of(connection)
    await spoil(connection)

    async def publish_all() -> None:
        for r in rounds[1:]:
            await agent.publish(r)

    caplog.set_level("INFO")
    publishing = asyncio.create_task(publish_all())
    async with asyncio.timeout(20):
        while words not in caplog.text:  # noqa: ASYNC110 - what is said is waited for
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    assert not publishing.done()
    await connection.api(f"STREAM.{mend}.LOGS", config)
    await publishing

    assert await stored() == [r.payload for r in rounds[-kept:]]
    assert len([m for m in caplog.messages if words in m]) == 1
    assert [m for m in caplog.messages if "resumed" in m]


@pytest.mark.parametrize("older", [False, True], ids=["own lines", "an older agent's lines"])
async def test_a_broker_that_was_set_back_is_gone_on_with(
    connection: Connection, stored: Stored, older: bool
) -> None:
    agent = await start(connection)
    kept = await agent.publish(first := round_of(agent, 0))
    if older:
        agent = await start(connection, "bbbbbbbb")
    for number in range(1, 30):
        await agent.publish(round_of(agent, number))
    await set_back(connection, kept)
    rounds = [round_of(agent, number) for number in (40, 41)]

    async with asyncio.timeout(60):
        for r in rounds:
            await agent.publish(r)

    assert await stored() == [r.payload for r in (first, *rounds)]


async def set_back(connection: Connection, last: int) -> None:
    """Make the stream anew with the messages up to a sequence, as a restored backup has them."""
    config = await config_of(connection)
    get = partial(connection.api, "STREAM.MSG.GET.LOGS")
    messages = [(await get({"seq": n}))["message"] for n in range(1, last + 1)]
    await connection.api("STREAM.DELETE.LOGS")
    await connection.api("STREAM.CREATE.LOGS", config)
    for message in messages:
        head = base64.b64decode(message.get("hdrs", ""))
        headers = RawMessage("", "", head, b"").headers or {}
        ours = {name: value for name, value in headers.items() if name.startswith("Log-")}
        data = base64.b64decode(message.get("data", ""))
        await connection.ask(message["subject"], data, ours)
