"""A shipper keeps the interval that the broker asks for, as long as the broker asks for it."""

import asyncio
import json
import time
from functools import partial
from pathlib import Path

import pytest

from nats_logship.app.timestamps import SECOND
from nats_logship.client.bucket import read, write
from nats_logship.client.connection import Connection
from nats_logship.wire.interval import INTERVAL_EXPIRES, INTERVAL_KEY
from nats_logship.wire.streams import CONFIG_BUCKET
from shipper.clock import Clock
from shipper.publish.config import BrokerConfig
from tests.conftest import Server
from tests.pages import page, samples
from tests.shipper.conftest import read_stream, until, wait_for_lines
from tests.shipper.logs import Ship, append, run, wait_for_log
from tests.support.suite import ask

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


async def put(value: bytes, connection: Connection) -> None:
    """Write the interval, as logbroker does."""
    entry = await read(connection, CONFIG_BUCKET, INTERVAL_KEY)
    await write(connection, CONFIG_BUCKET, INTERVAL_KEY, value, entry.revision if entry else 0)


def write_for(seconds: float, log: Path) -> None:
    """Append a line twenty times a second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        append(log, b"again\n")
        time.sleep(0.05)


def test_small_rounds_are_apart_as_asked_and_a_line_after_a_silence_leaves_at_once(
    logs_url: str, ship: Ship, log: Path, own_host: str
) -> None:
    ask(logs_url, partial(put, b"3"))
    agent = ship(logs_url, "--file", log, "--listen", "127.0.0.1:0", host=own_host)
    wait_for_lines(logs_url, b"one\n", agent)
    wait_for_log(agent, "the broker asks for at least 3 s between two rounds")
    time.sleep(3.3)  # the interval after the first round, at most
    began = time.monotonic()
    append(log, b"two\n")
    wait_for_lines(logs_url, b"one\ntwo\n", agent)
    took = time.monotonic() - began
    before = len(ask(logs_url, read_stream))
    write_for(7, log)
    rounds = len(ask(logs_url, read_stream)) - before
    reported, table = (run("status", *m, "--host", own_host) for m in (["--json"], []))
    (_, health), (_, metrics) = page(agent, "/healthz"), page(agent, "/metrics")
    ask(logs_url, partial(put, b"0"))
    wait_for_log(agent, "the broker asks for at least 0 s between two rounds")
    write_for(7, log)  # the last interval was long
    faster = len(ask(logs_url, read_stream)) - before - rounds

    assert took < 2.8, "an interval later"
    assert 1 <= rounds <= 4
    assert faster >= 6
    text = "at least 3 s between rounds, as the broker asks"
    assert text in table.stdout
    assert health == f"{text}\n"
    assert json.loads(reported.stdout)[0]["interval_seconds"] == 3
    assert samples(metrics)["logshipper_interval_seconds"] == 3


@pytest.mark.parametrize(
    "value",
    [b"1e9", b"nan", b"-1", b"61", b"1.0001", b"0x1", b"\xff", b'{"seconds": 1}', b"9" * 10**6],
    ids=lambda value: repr(value[:20]),
)
async def test_a_value_that_is_no_interval_is_logged_once_and_ignored(
    connection: Connection, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    await put(b"0.25", connection)
    config = BrokerConfig(connection, "web01", Clock())
    following = asyncio.ensure_future(config.run())
    await until(lambda: config.interval.seconds == 0.25)

    for _ in range(2):
        await put(value, connection)
    await until(lambda: "is not an interval" in caplog.text)
    still = config.interval.seconds
    await put(b"0.5", connection)
    await until(lambda: config.interval.seconds == 0.5)
    following.cancel()

    assert still == 0.25
    assert caplog.text.count("is not an interval") == 1
    assert len(caplog.text) < 1000


async def test_an_interval_that_no_broker_renews_is_forgotten_but_not_without_a_broker(
    own_broker: Server,
) -> None:
    connection, now = Connection([own_broker.url], "test"), [1]
    await put(b"2", connection)
    config = BrokerConfig(connection, "web01", Clock(steady=lambda: now[0]))
    following = asyncio.ensure_future(config.run())
    await until(lambda: config.interval.seconds == 2)

    await asyncio.to_thread(own_broker.stop)
    now[0] += 10 * INTERVAL_EXPIRES * SECOND
    await until(lambda: bool(connection.away))
    away = config.interval.seconds
    await asyncio.to_thread(own_broker.start)
    await until(lambda: config.interval.renewed == now[0])
    back = config.interval.seconds
    now[0] += (INTERVAL_EXPIRES + 1) * SECOND
    await until(lambda: config.interval.seconds == 0)
    await put(b"2", connection)
    await until(lambda: config.interval.seconds == 2)
    following.cancel()
    await connection.close()

    assert away == back == 2
