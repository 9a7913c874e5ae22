"""Backpressure, not loss: lines wait in files and in the stream, and arrive all the same."""

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from broker.report import REPORT_SUBJECT
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from nats_logship.wire.subjects import partition_of
from receiver.consume.assignment import Blocked, Done
from receiver.storage.anomalies import GAP_REPORTS
from tests.receiver.partition import Partition
from tests.shipper.conftest import read_lines
from tests.shipper.logs import append, lines, rotate, wait_for_log
from tests.support.oracle import judge
from tests.support.processes import Process, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.timeout(360)]

LIMIT = 8_000_000
OPTIONS = ("--compression", "none", "--round-size", "256KiB", "--patience", "1m")
LINES = 100_000  # of a hundred bytes: more than the stream has space for
HOSTS = {partition_of(host, 2): host for host in ("web01", "web02", "web03", "db01", "db02")}
FILTER = ("--exclude-lines", "[05] [.]")


def write_lines(suite: Suite, host: str, lines: int) -> Path:
    file = suite.folder / "hosts" / f"{host}.log"
    file.write_text("".join(f"{host} {n:09d} {'.' * 80}\n" for n in range(lines)))
    return file


def kept_of(file: Path) -> bytes:
    """Return the lines that the filter leaves: those whose number does not end with 0 or 5."""
    lines = file.read_bytes().splitlines(True)
    return b"".join(line for line in lines if line[-83:-82] not in b"05")


def start_shipper(suite: Suite, host: str, file: Path, *options: str) -> Process:
    return suite.start_shipper(host, [file], *options, *OPTIONS)


class Receiver:
    """The tasks of one partition, one after the other, without Spark."""

    def __init__(self, suite: Suite, number: int) -> None:
        folder = suite.folder / f"received-{number}"
        folder.mkdir()
        self.partition = Partition(suite.url, folder, number, limit=1_000_000)
        self.partition.claim()
        self.live = self.partition.output / f"{HOSTS[number]}.log"
        self._next = 1

    def receive(self) -> None:
        done = self.partition.run(self._next)
        if isinstance(done, Done):  # else the broker is away: again from where it was
            self._next = done.until

    def until_it_has(self, size: int) -> None:
        def has() -> bool:
            self.receive()
            return self.live.exists() and self.live.stat().st_size >= size

        wait_until(f"{size} bytes are received", has, 150)


def space(suite: Suite) -> dict[str, Any]:
    async def report(connection: Connection) -> dict[str, Any]:
        told = json.loads((await connection.request(REPORT_SUBJECT)).data)["retention"]
        return dict(told.get(STREAM, {}))

    return suite.ask(report)


def test_lines_go_once_through_a_stream_too_small_for_them_whoever_is_killed(suite: Suite) -> None:
    """A receiver could not distinguish a repeated section of filtered lines from another one."""
    broker = suite.start_broker("--max-bytes", str(LIMIT))
    files = [write_lines(suite, HOSTS[n], count) for n, count in ((0, LINES), (1, LINES // 4))]
    killed = start_shipper(suite, HOSTS[0], files[0], *FILTER)
    other = start_shipper(suite, HOSTS[1], files[1], "--once")
    wait_until("hosts wait", lambda: space(suite).get("state") == "hosts wait", 90, [broker])

    first, second = (Receiver(suite, number) for number in (0, 1))
    first.receive()  # the other partition still needs the oldest messages
    for size in range(2_000_000, 7_000_000, 2_000_000):
        broker.kill()
        broker.start()
        suite.wait_for_broker(broker)
        second.until_it_has(files[1].stat().st_size)
        first.until_it_has(size)
    killed.kill()
    again = start_shipper(suite, HOSTS[0], files[0], "--once", *FILTER)
    first.until_it_has(len(kept_of(files[0])))
    assert [again.wait(90), other.wait(90)] == [0, 0]
    # a shipper goes on by its snapshot, whatever is left in the stream
    last = start_shipper(suite, HOSTS[0], files[0], "--once", *FILTER)
    assert last.wait(90) == 0
    first.receive()

    for receiver, kept in ((first, kept_of(files[0])), (second, files[1].read_bytes())):
        assert receiver.live.read_bytes() == kept
        assert list(receiver.partition.output.glob(GAP_REPORTS)) == []


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_without_acks_lines_wait_for_a_broker_that_is_away_and_for_a_full_disk(
    suite: Suite, *, is_killed: bool
) -> None:
    """A shipper that is killed meanwhile may repeat lines."""
    log, host = suite.folder / "hosts" / "a.log", HOSTS[0]
    append(log, lines(0, 10_000))
    broker = suite.start_broker()
    shipper = suite.start_shipper(host, [log], "--no-ack", "--poll-every", "50ms")
    wait_until("they are stored", lambda: read_lines(suite.url) == lines(0, 10_000), 60, [shipper])

    broker.kill()
    append(log, lines(10_000, 20_000))
    rotate(log)
    append(log, lines(20_000, 30_000))
    wait_for_log(shipper, "broker away")
    if is_killed:
        shipper.kill()
    append(log, lines(30_000, 40_000))
    if is_killed:
        shipper.start()
    broker.start()
    suite.wait_for_broker(broker)
    is_last = lambda: read_lines(suite.url).endswith(lines(39_999, 40_000))  # noqa: E731
    wait_until("all is shipped", is_last, 60, [shipper])
    receiver = Receiver(suite, 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        refused = receiver.partition.run(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    receiver.until_it_has(len(lines(0, 40_000)))

    assert isinstance(refused, Blocked)
    verdict = judge([lines(0, 40_000)], receiver.live.read_bytes())
    assert (verdict.missing, verdict.torn, verdict.foreign) == (0, 0, 0), verdict
