"""Replays and verifications on a real cluster whose machines have nothing of ours, and no pyarrow."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import Processes
from broker.exits import Exit
from tests.receiver.cluster import Cluster
from tests.receiver.partition import Partition, ours

PROGRAM = str(Path(sys.executable).with_name("logreceiver"))


@pytest.mark.nats
@pytest.mark.spark
def test_lines_are_replayed_and_verified_by_executors_that_have_nothing(
    processes: Processes, logs_url: str, tmp_path: Path
) -> None:
    partition = Partition(logs_url, tmp_path)
    lines = [b"line %04d\n" % n for n in range(30)]
    partition.publish(*(ours("web01", "app.log", 10 * n, line) for n, line in enumerate(lines)))
    partition.claim()
    partition.receive()
    cluster = Cluster(processes, tmp_path, workers=1)

    def run(command: str, output: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                *(PROGRAM, command, "--server", logs_url, "--output", str(output), *words),
                *("--master", cluster.url, "--executor-python", str(cluster.python)),
            ],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    again, table = tmp_path / "again", tmp_path / "table"
    replayed = run("replay", again, "--since", "earliest")
    verified = run("verify", partition.output)
    refused = run("replay", table, "--since", "earliest", "--format", "parquet")

    assert replayed.returncode == 0, replayed.stderr
    assert (again / "web01.log").read_bytes() == b"".join(lines)
    assert (verified.returncode, verified.stdout.splitlines()[0]) == (
        0,
        "all well: 1 hosts, 300 B compared",
    ), verified.stderr
    assert refused.returncode == Exit.CONFIGURATION, refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "pyarrow" in refused.stderr
