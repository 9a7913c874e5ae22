"""A cluster of three brokers: its leader is killed in mid-round, loses its disk, and comes back."""

import random
import time
from pathlib import Path

import pytest

from nats_logship.wire.streams import STREAM
from receiver.consume.wake import Wake
from tests.broker.cluster import Cluster
from tests.support.oracle import expect_all
from tests.support.processes import Processes, wait_until
from tests.support.received import received_bytes
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(720)]

HOSTS = ("web01", "web02")  # one of each partition
FLOWS_AGAIN = 60.0  # seconds; ten where the machine has nothing else to do


def test_nothing_is_lost_when_the_leader_is_killed_and_its_disk_is_gone(tmp_path: Path) -> None:
    files = {host: tmp_path / "hosts" / host / "app.log" for host in HOSTS}

    def sizes() -> dict[str, int]:
        return {host: received_bytes(suite.output, host) for host in HOSTS}

    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes)
        suite = Suite(tmp_path, processes, url=",".join(cluster.urls))
        with Traffic(list(files.values()), 200, 1) as traffic:
            programs = [  # which wait for the brokers
                suite.start_receiver([0, 1]),
                *(suite.start_shipper(host, [file]) for host, file in files.items()),
            ]
            cluster.wait_until_ready()
            cluster.wait_until_whole()
            suite.wait_for_lines(HOSTS, programs)
            ask = lambda sequence: cluster.insist(  # noqa: E731
                lambda connection: Wake(connection, 0, STREAM).is_drained(sequence)
            )
            assert (ask(1), ask(1_000_000_000)) == (False, True)
            leader = cluster.leader()
            time.sleep(random.Random(1).random())

            leader.process.kill()
            leader.wipe()
            before = sizes()
            grow = lambda: all(size > before[host] for host, size in sizes().items())  # noqa: E731
            wait_until("lines flow again", grow, FLOWS_AGAIN, programs)
            leader.process.start()
            cluster.wait_until_ready(leader)
            cluster.wait_until_whole()
        expect_all(suite.output, {host: [traffic.written[file]] for host, file in files.items()})
        assert [program.stop() for program in programs] == [0] * len(programs)
