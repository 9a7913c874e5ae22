"""Three brokers as a cluster: the one that leads is killed in mid-round, loses its disk, and comes back."""

import random
import time
from pathlib import Path

import pytest

from bench.processes import Processes, wait_until
from bench.traffic import Traffic
from tests.broker.cluster import Brokers
from tests.journeys.clusters import Stage

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.timeout(240)]

HOSTS = ("web01", "web02.example.net", "db1")
FLOWS_AGAIN = (
    30.0  # seconds; ten where the machine has nothing else to do, which the campaign shows
)


def test_nothing_is_lost_when_the_leader_is_killed_and_its_disk_is_gone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        cluster = Brokers(tmp_path, processes)
        stage = Stage(tmp_path, processes, cluster, HOSTS)
        with Traffic(list(stage.files.values()), 500, 1) as traffic:
            cluster.set_up()
            programs = [stage.start_receiver(), *map(stage.start_shipper, HOSTS)]
            stage.wait_for_lines()
            leader = cluster.leader()
            time.sleep(random.Random(1).random())

            leader.kill()
            leader.wipe()
            before = stage.sizes()
            wait_until(
                "lines flow again",
                lambda: all(size > before[host] for host, size in stage.sizes().items()),
                FLOWS_AGAIN,
                programs,
            )
            leader.start()
            cluster.wait_until_ready(leader)
            cluster.wait_until_whole()
        for host, verdict in stage.verdicts(traffic).items():
            assert verdict.is_perfect, f"{host}: {verdict}"
            assert verdict.written > 0
        assert [program.stop() for program in programs] == [0] * len(programs)
