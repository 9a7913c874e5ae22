"""Shippers, a broker and receivers where the stream is too small: hosts wait, and every line arrives once all the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.connection import Connection
from broker.report import SUBJECT
from broker.wire.streams import STREAM
from broker.wire.subjects import partition_of
from receiver.consume.assignment import Done
from receiver.storage.tables import GAP_REPORTS
from tests.receiver.partition import Partition, ask
from tests.support.oracle import judge_host
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.timeout(360)]

LIMIT = 8_000_000
OPTIONS = ("--compression", "none", "--round-size", "256KiB", "--patience", "1m")
LINES = 100_000  # of a hundred bytes: more than the stream has space for
HOSTS = {partition_of(host, 2): host for host in ("web01", "web02", "web03", "db01", "db02")}


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    with Processes(tmp_path) as processes:
        yield Suite(tmp_path, processes)


def lines_of(host: str, first: int, until: int) -> str:
    return "".join(f"{host} {number:09d} {'.' * 80}\n" for number in range(first, until))


def write_lines(suite: Suite, host: str, lines: int = LINES) -> Path:
    file = suite.folder / "hosts" / f"{host}.log"
    file.write_text(lines_of(host, 0, lines))
    return file


def kept_of(file: Path) -> list[bytes]:
    """Return the lines whose number does not end with 0 or 5."""
    return [line for line in file.read_bytes().splitlines(True) if line[-83:-82] not in b"05"]


def start_shipper(suite: Suite, host: str, file: Path, *options: str) -> Process:
    return suite.start_shipper(host, [file], *options, *OPTIONS)


class Receiver:
    """The tasks of one partition, one after the other, without Spark."""

    def __init__(self, suite: Suite, number: int) -> None:
        folder = suite.folder / f"received-{number}"
        folder.mkdir()
        self.partition = Partition(suite.url, folder, number, limit=1_000_000)
        self.partition.claim()
        self._next = 1

    @property
    def size(self) -> int:
        live = self.partition.output / f"{HOSTS[self.partition.number]}.log"
        return live.stat().st_size if live.exists() else 0

    def receive(self) -> None:
        done = self.partition.run(self._next)
        if isinstance(done, Done):  # else the broker is away: again from where it was
            self._next = done.until

    def until_it_has(self, size: int) -> None:
        def has() -> bool:
            self.receive()
            return self.size >= size

        wait_until(f"{size} bytes are received", has, 150)


def space(suite: Suite) -> dict[str, Any]:
    """Return what the broker reports of the space in its stream."""

    async def report(connection: Connection) -> dict[str, Any]:
        told = json.loads((await connection.request(SUBJECT)).data)["retention"]
        return dict(told.get(STREAM, {}))

    return ask(suite.url, report)


def test_lines_go_through_a_stream_too_small_for_them_and_what_nobody_receives_stays(
    suite: Suite,
) -> None:
    broker = suite.start_broker("--max-bytes", str(LIMIT))
    files = {
        number: write_lines(suite, HOSTS[number], lines)
        for number, lines in ((0, LINES), (1, LINES // 4))
    }
    shippers = [start_shipper(suite, HOSTS[n], files[n], "--once") for n in (0, 1)]
    wait_until("hosts wait", lambda: space(suite).get("state") == "hosts wait", 90, [broker])

    receivers = [Receiver(suite, number) for number in (0, 1)]
    receivers[0].receive()  # the other partition still needs the oldest messages
    broker.kill()
    broker.start()
    suite.wait_for_broker(broker)

    def all_is_there() -> bool:
        for receiver in receivers:
            receiver.receive()
        return all(one.size >= files[one.partition.number].stat().st_size for one in receivers)

    wait_until("all is received", all_is_there, 150)

    assert [shipper.wait(90) for shipper in shippers] == [0, 0]
    # a shipper goes on by its snapshot, whatever is left in the stream
    assert start_shipper(suite, HOSTS[0], files[0], "--once").wait(90) == 0
    receivers[0].receive()

    for receiver in receivers:
        output, number = receiver.partition.output, receiver.partition.number
        assert judge_host([files[number]], output, HOSTS[number]).is_perfect
        assert list(output.glob(GAP_REPORTS)) == []


def test_whoever_is_killed_nothing_comes_twice_though_the_last_messages_were_purged(
    suite: Suite,
) -> None:
    """Lines that a filter leaves out: a receiver could not tell a repeated section from another one.

    The broker is killed in the middle of rounds, and purges what it has before the shipper hears of it.
    """
    broker = suite.start_broker("--max-bytes", str(LIMIT))
    host, receiver = HOSTS[0], Receiver(suite, 0)
    file = write_lines(suite, host)
    filtered = ("--exclude-lines", "[05] [.]")
    shipper = start_shipper(suite, host, file, *filtered)
    for size in range(2_000_000, 7_000_000, 2_000_000):
        receiver.until_it_has(size)
        broker.kill()
        broker.start()
        suite.wait_for_broker(broker)
    shipper.kill()
    again = start_shipper(suite, host, file, "--once", *filtered)
    kept = kept_of(file)
    receiver.until_it_has(sum(map(len, kept)))
    assert again.wait(90) == 0
    receiver.receive()

    live = receiver.partition.output / f"{host}.log"
    assert live.read_bytes() == b"".join(kept)
    assert list(receiver.partition.output.glob(GAP_REPORTS)) == []
