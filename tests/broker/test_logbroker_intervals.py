"""`logbroker run` measures the rounds of all hosts, and writes the interval that keeps them few."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nats_logship.client.answer import ConnectionLost
from nats_logship.client.bucket import Entry, read
from nats_logship.client.connection import Connection
from nats_logship.wire.interval import INTERVAL_KEY, INTERVAL_RENEWED
from nats_logship.wire.streams import CONFIG_BUCKET
from nats_logship.wire.subjects import Subject
from tests.broker.cluster import Cluster
from tests.broker.conftest import Broker, StartBroker, logbroker
from tests.pages import page, samples
from tests.shipper.conftest import read_stream
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite, ask
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

HOSTS = 20
ROUNDS = ("--rounds", "10", "--partitions", "2")


@contextmanager
def hosts_sending(urls: list[str], rate: float) -> Iterator[None]:
    """Have hosts publish `rate` rounds a second together, also while a broker is away.

    Late rounds are made up for, so that also a slow machine keeps the rate.
    """
    over = threading.Event()

    async def send() -> None:
        connection, number, began = Connection(urls, "hosts"), 0, time.monotonic()
        while not over.is_set():
            with suppress(ConnectionLost):
                await connection.client()
                await connection.publish(f"logs.p0.host{number % HOSTS}", b"a line\n")
            number += 1
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        await connection.close()

    sender = threading.Thread(target=asyncio.run, args=[send()])
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


async def read_entry(connection: Connection) -> Entry:
    return await read(connection, CONFIG_BUCKET, INTERVAL_KEY) or Entry(b"", 0)


def wait_for_value(broker: Broker, value: bytes, revision: int = 0) -> Entry:
    """Return the entry once it has a value, at a later revision."""
    url, found = broker.ready()["server"], [Entry(b"", 0)]

    def is_there() -> bool:
        found[0] = ask(url, read_entry)
        return (found[0].value, found[0].revision > revision) == (value, True)

    wait_until(f"the interval is {value!r}", is_there, 60, [broker], every=0.2)
    return found[0]


def status(broker: Broker) -> tuple[dict[str, Any], str]:
    """Return the status as JSON and as a person reads it."""
    server = ("--server", broker.ready()["server"])
    document, table = logbroker("status", "--json", *server), logbroker("status", *server)
    return json.loads(document.stdout), table.stdout


def test_many_rounds_set_the_interval_which_is_shown_and_outlives_the_broker(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(*ROUNDS, "--metrics", "127.0.0.1:0")
    url = broker.ready()["server"]
    with hosts_sending([url], 600):  # far more than the interval needs, also in a first part
        entry = wait_for_value(broker, b"2")  # hosts / rounds
        found, table = status(broker)
        wait_until("metrics show it", lambda: shown_interval(broker) == 2, 40, [broker])
        broker.kill()
        broker = start_broker(*ROUNDS, "--listen", url.removeprefix("nats://"))
        wait_until("it has measured", lambda: measured_rate(broker) > 10, 60, [broker])
        kept = ask(url, read_entry)
    broker.kill()
    broker = start_broker("--rounds", "0", "--partitions", "2")
    over = wait_for_value(broker, b"0", kept.revision)
    off, _ = status(broker)

    assert found["interval_seconds"] == 2
    assert found["rounds_per_second"] > 10
    assert " a second, at least 2 s between two rounds of a host" in table
    assert kept == entry
    assert over.revision > entry.revision
    assert off["interval_seconds"] == 0


def shown_interval(broker: Broker) -> float | None:
    return samples(page(broker, "/metrics")[1]).get("logbroker_interval_seconds")


def measured_rate(broker: Broker) -> float:
    return status(broker)[0]["rounds_per_second"] or 0.0


@pytest.mark.long
def test_one_broker_of_a_cluster_sets_the_interval_and_another_goes_on(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes, 3 * ("rounds = 10\n",))
        cluster.wait_until_ready()
        with hosts_sending(cluster.urls, 150):
            first = wait_for_entry(cluster, b"2")
            leader = cluster.leader()
            leader.process.kill()
            renewed = wait_for_entry(cluster, b"2", first.revision)
        logs = [node.process.read_log() for node in cluster.nodes.values()]

    assert renewed.revision == first.revision + 1
    assert [text.count("between two rounds") for text in logs].count(1) == 1
    assert sum(text.count("between two rounds") for text in logs) == 1


@pytest.mark.long
def test_shippers_send_as_often_as_asked_until_they_have_little_to_send(suite: Suite) -> None:
    logs = [suite.folder / "hosts" / f"host{number}.log" for number in range(5)]
    broker = suite.start_broker("--rounds", "5")
    agents = [suite.start_shipper(log.stem, [log]) for log in logs]
    with Traffic(logs, 40):
        wait_for_interval(suite, lambda seconds: seconds >= 0.8, broker)  # hosts / rounds: 1 s
        is_known = lambda: all("asks for at least" in one.read_log() for one in agents)  # noqa: E731
        wait_until("all are asked", is_known, 20, agents)
        before = suite.last_sequence()
        time.sleep(10)
        rounds = suite.last_sequence() - before
    first = suite.ask(read_entry)
    last = wait_for_interval(suite, lambda seconds: seconds <= 0.5, broker)

    assert 30 <= rounds <= 75  # 250 without an interval
    assert last.revision == first.revision + 2  # it was written again after a minute
    assert [agent.stop() for agent in agents] == 5 * [0]
    for log in logs:
        subject = Subject.for_host(log.stem, 2)
        stored = suite.ask(partial(read_stream, subject=subject))
        assert b"".join(one.lines for one in stored) == log.read_bytes()


def wait_for_interval(suite: Suite, holds: Callable[[float], bool], broker: Process) -> Entry:
    """Return the entry once its seconds fulfil a condition."""
    found = [Entry(b"", 0)]

    def is_there() -> bool:
        found[0] = suite.ask(read_entry)
        return bool(found[0].value) and holds(float(found[0].value))

    wait_until("the interval is another one", is_there, 2 * INTERVAL_RENEWED, [broker], every=0.5)
    return found[0]


def wait_for_entry(cluster: Cluster, value: bytes, revision: int = 0) -> Entry:
    """Return the entry of a cluster once it has a value, at a later revision."""
    end = time.monotonic() + 2 * INTERVAL_RENEWED
    while time.monotonic() < end:
        found = cluster.insist(read_entry)
        if found.value == value and found.revision > revision:
            return found
        time.sleep(0.5)
    raise TimeoutError(value)
