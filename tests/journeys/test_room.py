"""Shippers, a broker and receivers where space runs short: hosts wait, and every line arrives once all the same."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.oracle import judge_host
from bench.processes import Process, Processes, wait_until
from bench.suite import Suite
from broker.client.connection import Connection
from broker.keeping.room_drops import NAME
from broker.report import SUBJECT
from broker.wire.subjects import partition_of
from receiver.consume.outcome import Done
from receiver.storage.gaps import GAPS
from tests.receiver.partition import Partition, ask

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.timeout(360)]

LIMIT = 8_000_000
OPTIONS = ("--compression", "none", "--round-size", "1MiB", "--patience", "1m")
LINES = 100_000  # of a hundred bytes: more than the stream has room for
HOSTS = {partition_of(host, 2): host for host in ("web01", "web02", "web03", "db01", "db02")}


@pytest.fixture
def suite(tmp_path: Path) -> Iterator[Suite]:
    with Processes(tmp_path) as processes:
        yield Suite(tmp_path, processes)


def write_lines(suite: Suite, host: str, lines: int = LINES) -> Path:
    file = suite.folder / "hosts" / f"{host}.log"
    file.write_text("".join(f"{host} {number:09d} {'.' * 80}\n" for number in range(lines)))
    return file


def start_shipper(suite: Suite, host: str, *files: Path) -> Process:
    return suite.start_shipper(host, files, "--once", *OPTIONS)


class Receiver:
    """The tasks of one partition, one after the other, without Spark."""

    def __init__(self, suite: Suite, number: int) -> None:
        folder = suite.folder / f"received-{number}"
        folder.mkdir()
        self.partition = Partition(suite.url, folder, number, limit=1_000_000)
        self.partition.claim()
        self._next = 1

    def receive(self) -> None:
        done = self.partition.run(self._next)
        if isinstance(done, Done):  # else the broker is away: again from where it was
            self._next = done.until

    def until_all_is_there(self, host: str, size: int) -> None:
        live = self.partition.output / f"{host}.log"

        def is_there() -> bool:
            self.receive()
            return live.exists() and live.stat().st_size >= size

        wait_until(f"all of {host} is received", is_there, 150)


def test_lines_go_through_a_stream_too_small_for_them_and_what_nobody_receives_stays(
    suite: Suite,
) -> None:
    broker = suite.start_broker("--max-bytes", str(LIMIT))
    files = {
        number: write_lines(suite, HOSTS[number], lines)
        for number, lines in ((0, LINES), (1, LINES // 4))
    }
    rotated = suite.folder / "hosts" / "rotated.log"
    rotated.write_text("written long ago\n")
    shippers = [
        start_shipper(suite, HOSTS[0], rotated, files[0]),
        start_shipper(suite, HOSTS[1], files[1]),
    ]
    wait_until("hosts wait", lambda: room_report(suite)["waits"], 90, [broker])

    receivers = [Receiver(suite, number) for number in (0, 1)]
    size = files[0].stat().st_size + rotated.stat().st_size
    receivers[0].until_all_is_there(HOSTS[0], size)
    assert room_report(suite)["purged_bytes"] > LIMIT / 4
    broker.kill()
    broker.start()
    suite.wait_for_broker(broker)
    receivers[1].until_all_is_there(HOSTS[1], files[1].stat().st_size)

    assert [shipper.wait(90) for shipper in shippers] == [0, 0]
    # a shipper goes on by its positions, whatever is left in the stream
    assert start_shipper(suite, HOSTS[0], rotated, files[0]).wait(90) == 0
    receivers[0].receive()

    for receiver, sources in zip(receivers, ([rotated, files[0]], [files[1]]), strict=True):
        output = receiver.partition.output
        assert judge_host(sources, output, HOSTS[receiver.partition.number]).is_perfect
        assert not (output / GAPS).exists()
    assert not (suite.folder / "store" / NAME).exists()


def test_the_oldest_lines_are_dropped_by_name_and_nothing_else_is_missing(suite: Suite) -> None:
    broker = suite.start_broker("--max-bytes", str(LIMIT), "--on-full", "drop-oldest")
    receiver = Receiver(suite, 0)
    file = write_lines(suite, HOSTS[0], 100)
    assert start_shipper(suite, HOSTS[0], file).wait(90) == 0
    receiver.receive()  # a file of which nothing was ever received may begin anywhere, and shows no gap
    file = write_lines(suite, HOSTS[0], 2 * LINES)
    shipper = start_shipper(suite, HOSTS[0], file)
    book = suite.folder / "store" / NAME
    wait_until("lines are dropped", book.exists, 90, [broker, shipper])
    broker.kill()
    broker.start()
    suite.wait_for_broker(broker)
    assert shipper.wait(180) == 0
    wait_until("the drop is marked", lambda: '"dropped"' in last_line(book), 90, [broker])

    before = -1
    live = receiver.partition.output / f"{HOSTS[0]}.log"
    while before != (before := live.stat().st_size if live.exists() else 0):
        receiver.receive()

    written, received = file.read_bytes(), live.read_bytes()
    gaps = [
        json.loads(line) for line in (receiver.partition.output / GAPS).read_text().splitlines()
    ]
    for gap in reversed(gaps):
        written = written[: gap["start"]] + written[gap["end"] :]
    assert written == received
    told = [json.loads(line) for line in book.read_text().splitlines()]
    named = [
        (file["start"], file["end"])
        for one in told
        if one["state"] == "announced"
        for file in one["files"]
    ]
    for gap in gaps:
        assert min(start for start, _ in named) <= gap["start"] <= gap["end"]
        assert gap["end"] <= max(end for _, end in named)


def room_report(suite: Suite) -> dict[str, Any]:
    """Return what the broker says of the room in its stream."""

    async def report(connection: Connection) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((await connection.request(SUBJECT)).data)["room"]
        return told

    return ask(suite.url, report)


def last_line(path: Path) -> str:
    return path.read_text().splitlines()[-1]
