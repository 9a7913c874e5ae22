"""The number of partitions changes, over several streams, while lines flow and programs die."""

import json
import time

import pytest

from nats_logship.client.connection import Connection
from nats_logship.wire.subjects import Subject, partition_of
from tests.support.oracle import expect_all
from tests.support.processes import wait_until
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(420)]

HOSTS = ("web01", "web02", "db01.example.net", "cache")
NUMBERS = (2, 7, 2)  # the suite begins with the first
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

    return suite.ask(count)


@pytest.mark.long
def test_hosts_that_go_over_and_back_keep_one_file_through_kills(suite: Suite) -> None:
    assert all(len({partition_of(host, number) for number in NUMBERS}) > 1 for host in HOSTS)
    suite.start_broker("--streams", str(STREAMS))
    where = ("--server", suite.url, "--output", suite.output, "--state-dir", suite.folder / "state")
    arguments = ("--partition", "all", *where, "--rotate-size", "100kB")
    receiver = suite.start_program("logreceiver", "receiver", arguments)
    files = {host: suite.folder / "hosts" / host / "app.log" for host in HOSTS}
    shippers = {host: suite.start_shipper(host, [file]) for host, file in files.items()}
    with Traffic(list(files.values()), 300) as traffic:
        suite.wait_for_lines(HOSTS, [receiver])
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
    expect_all(suite.output, {h: [traffic.written[file]] for h, file in files.items()}, [receiver])
    assert [path.name for path in suite.output.rglob("*..p*")] == []
    verified = suite.start_program("logreceiver", "verify", ("verify", "--json", *where))
    assert verified.wait(90) == 0, verified.read_log()
    said = verified.read_log()
    report = json.loads(said[said.index("{") :])
    assert (report["hosts"], report["moved"], report["files"]) == (len(HOSTS), [], [])
