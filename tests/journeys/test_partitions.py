"""The number of partitions changes, over several streams, while lines flow and programs die: each host stays in one file, every line once, in order."""

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.subjects import Subject, partition_of
from tests.receiver.partition import ask
from tests.support.oracle import judge
from tests.support.processes import Processes, wait_until
from tests.support.received import read_received, received_bytes
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(420)]

HOSTS = ("web01", "web02", "db01.example.net", "cache")
NUMBERS = (2, 7, 2)
STREAMS = 3  # p0 and p3, p1 and p4 share one, and so on


def published(suite: Suite, number: int) -> dict[str, int]:
    """Return how many messages of each host are on its subject among so many partitions."""

    async def count(connection: Connection) -> dict[str, int]:
        found: dict[str, int] = {}
        for stream in range(STREAMS):
            asked = {"subjects_filter": ">"}
            state = (await connection.api(f"STREAM.INFO.LOGS_{stream}", asked))["state"]
            found |= state.get("subjects") or {}
        return {host: found.get(str(Subject.for_host(host, number)), 0) for host in HOSTS}

    return ask(suite.url, count)


@pytest.mark.long
def test_hosts_that_go_over_and_back_keep_one_file_through_kills(tmp_path: Path) -> None:
    assert all(len({partition_of(host, number) for number in NUMBERS}) > 1 for host in HOSTS)
    with Processes(tmp_path) as programs, ExitStack() as stack:
        suite = Suite(tmp_path, programs, partitions=NUMBERS[0])
        suite.start_broker("--streams", str(STREAMS))
        receiver = suite.start_program(
            "logreceiver",
            "receiver",
            [
                *("--partition", "all", "--server", suite.url, "--output", str(suite.output)),
                *("--state-dir", str(tmp_path / "state"), "--rotate-size", "100kB"),
            ],
        )
        files = {host: tmp_path / "hosts" / host / "app.log" for host in HOSTS}
        shippers = {host: suite.start_shipper(host, [file]) for host, file in files.items()}
        traffic = {
            host: stack.enter_context(Traffic([file], 300, seed))
            for seed, (host, file) in enumerate(files.items())
        }

        def received(host: str) -> int:
            return received_bytes(suite.output, host)

        wait_until("lines flow", lambda: all(map(received, HOSTS)), 120, [receiver])
        for number, host in zip(NUMBERS[1:], HOSTS, strict=False):
            before = published(suite, number)
            suite.administer("partitions", str(number), "--yes")
            time.sleep(1)
            for victim in (receiver, shippers[host]):
                victim.kill()
                victim.start()
            wait_until(
                f"all have gone over to {number} partitions",
                lambda number=number, before=before: all(
                    count > before[one] + 1 for one, count in published(suite, number).items()
                ),
                120,
                [receiver],
            )
        for one in traffic.values():
            one.stop()
        written = {host: traffic[host].written[file] for host, file in files.items()}
        for host, lines in written.items():
            wait_until(
                f"all of {host} is received",
                lambda host=host, lines=lines: received(host) >= len(lines),
                120,
                [receiver],
            )
        verdicts = {h: judge([w], read_received(suite.output, h)) for h, w in written.items()}
        assert {h: str(v) for h, v in verdicts.items() if not v.is_perfect} == {}
        assert [path.name for path in suite.output.rglob("*..p*")] == []
        verified = suite.start_program(
            "logreceiver",
            "verify",
            [
                *("verify", "--server", suite.url, "--output", str(suite.output), "--json"),
                *("--state-dir", str(tmp_path / "state")),
            ],
        )
        assert verified.wait(90) == 0, verified.said()
        said = verified.said()
        report = json.loads(said[said.index("{") :])
        assert (report["hosts"], report["moved"], report["files"]) == (len(HOSTS), [], [])
