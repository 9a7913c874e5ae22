"""Replays and verifications on a real cluster whose machines have nothing of ours."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.processes import Processes
from receiver.replay.aside import beside
from receiver.replay.folder import prepare
from receiver.replay.job import Job
from receiver.replay.plan import Span
from receiver.replay.settings import ReplaySettings
from receiver.replay.summary import Summary
from receiver.replay.units import Unit
from receiver.spark.session import spark_context
from receiver.verify.outcome import Examined, Order
from receiver.verify.verify import examined
from tests.receiver.apart import apart
from tests.receiver.cluster import Cluster
from tests.receiver.partition import Partition, ours


@dataclass(frozen=True)
class Seen:
    """What came of a replay and of a verification."""

    replayed: Summary
    verified: Examined | object


def run(settings: ReplaySettings, output: Path, url: str, python: str, scratch: Path) -> Seen:
    job = Job(settings, Span((0, 1), 1, 31, 100, 1), settings.output, prepare(settings.output))
    with (
        spark_context(url, scratch=scratch, executor_python=python) as spark,
        beside() as aside,
    ):
        replayed = job.into_files(spark, aside, Summary(1, 31))
        order = Order(output, output / ".logreceiver", job.reader, keeps=False)
        (verified,) = examined(spark, aside, [Unit(0, 1, 31)], order)
    return Seen(replayed, verified)


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
    again = tmp_path / "again"
    settings = ReplaySettings(server=(logs_url,), since="earliest", output=again)

    seen = apart(
        run, settings, partition.output, cluster.url, str(cluster.python), tmp_path / "scratch"
    )

    assert (seen.replayed.lines, (again / "web01.log").read_bytes()) == (30, b"".join(lines))
    assert isinstance(seen.verified, Examined), seen.verified
    assert (seen.verified.hosts, seen.verified.size, seen.verified.reports) == (1, 300, ())
