"""Replays and verifications on a real cluster whose machines have nothing of ours."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import Processes
from tests.receiver.cluster import Cluster
from tests.receiver.partition import Partition, ours

PROGRAM = str(Path(sys.executable).with_name("logreceiver"))


@pytest.mark.nats
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_lines_are_replayed_and_verified_by_executors_that_have_nothing(
    processes: Processes, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    lines = [b"line %04d\n" % n for n in range(30)]
    partition.publish(*(ours("web01", "app.log", 10 * n, line) for n, line in enumerate(lines)))
    partition.claim()
    partition.receive()
    cluster = Cluster(processes, tmp_path, workers=1)
    there = ("--master", cluster.url, "--executor-python", str(cluster.python))
    again = tmp_path / "again"

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        whole = [PROGRAM, *words, "--server", logs_url, *there]
        return subprocess.run(whole, capture_output=True, text=True, timeout=400, check=False)

    replayed = run("replay", "--since", "earliest", "--output", str(again))
    verified = run(
        *("verify", "--output", str(partition.output), "--state-dir", str(partition.state))
    )

    assert replayed.returncode == 0, replayed.stderr
    assert (again / "web01.log").read_bytes() == b"".join(lines)
    assert verified.returncode == 0, verified.stderr
    assert "all well: 1 hosts, 300 B compared" in verified.stdout
