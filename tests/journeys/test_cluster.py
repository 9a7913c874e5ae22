"""Three brokers as a cluster: the one that leads is killed in mid-round, loses its disk, and comes back."""

import random
import sys
import time
from pathlib import Path

import pytest

from tests.broker.cluster import Cluster
from tests.support.oracle import Verdict, judge
from tests.support.processes import Process, Processes, wait_until
from tests.support.received import read_received
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.timeout(720)]

HOSTS = ("web01", "web02.example.net", "db1")
FLOWS_AGAIN = 60.0  # seconds; ten where the machine has nothing else to do


class Stage:
    """The cluster, the hosts and a receiver without Spark, in one folder."""

    def __init__(self, folder: Path, processes: Processes, cluster: Cluster) -> None:
        self.folder, self.processes, self.cluster = folder, processes, cluster
        self.output = folder / "out"
        self.files = {host: folder / "hosts" / host / "app.log" for host in HOSTS}

    def start_shipper(self, host: str) -> Process:
        servers = [word for url in self.cluster.urls for word in ("--server", url)]
        return self.processes.start(
            f"logshipper-{host}",
            [
                str(Path(sys.executable).with_name("logshipper")),
                *("--file", self.files[host], "--host", host, *servers),
            ],
        )

    def start_receiver(self) -> Process:
        return self.processes.start(
            "receiver",
            [
                *(sys.executable, "-m", "tests.receiver.without_spark"),
                *(self.output, self.folder / "state-receiver", str(self.cluster.partitions)),
                *self.cluster.urls,
            ],
        )

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each host have been received."""
        files = {host: self.output / f"{host}.log" for host in self.files}
        return {host: file.stat().st_size if file.exists() else 0 for host, file in files.items()}

    def wait_for_lines(self) -> None:
        wait_until("lines flow", lambda: all(self.sizes().values()), 150)

    def verdicts(self, traffic: Traffic) -> dict[str, Verdict]:
        """Wait until as much has come as was written, then judge."""
        written = {host: traffic.written[file] for host, file in self.files.items()}

        def has_all() -> bool:
            return all(size >= len(written[host]) for host, size in self.sizes().items())

        wait_until("all is received", has_all, 150)
        time.sleep(0.5)
        return {
            host: judge([data], read_received(self.output, host)) for host, data in written.items()
        }


def test_nothing_is_lost_when_the_leader_is_killed_and_its_disk_is_gone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        cluster = Cluster(tmp_path, processes)
        stage = Stage(tmp_path, processes, cluster)
        with Traffic(list(stage.files.values()), 500, 1) as traffic:
            cluster.wait_until_ready()
            cluster.wait_until_whole()
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
