"""Replays and verifications on a real cluster whose machines have nothing of ours, and no pyarrow."""

from pathlib import Path

import pytest

from bench.processes import Processes
from broker.exits import ConfigurationError
from receiver.replaying.aside import beside
from receiver.replaying.folder import prepare
from receiver.replaying.job import Job
from receiver.replaying.plan import Span
from receiver.replaying.selection import Unit
from receiver.replaying.settings import ReplaySettings
from receiver.replaying.summary import Summary
from receiver.spark.session import spark_context
from receiver.verifying.outcome import Examined, Order
from receiver.verifying.verify import examined
from tests.receiver.cluster import Cluster
from tests.receiver.partition import Partition, ours


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
    again = tmp_path / "again"
    settings = ReplaySettings(server=(logs_url,), since="earliest", output=again)
    job = Job(settings, Span((0, 1), 1, 31, 100, 1), again, prepare(again))

    with (
        spark_context(
            cluster.url, scratch=tmp_path / "scratch", executor_python=str(cluster.python)
        ) as spark,
        beside() as aside,
    ):
        replayed = job.into_files(spark, aside, Summary(1, 31))
        order = Order(partition.output, job.reader, keeps=False)
        (verified,) = examined(spark, aside, [Unit(0, 1, 31)], order)
        with pytest.raises(ConfigurationError, match="pyarrow on the executors"):
            job.into_table(spark, aside, Summary(1, 31))

    assert (replayed.lines, (again / "web01.log").read_bytes()) == (30, b"".join(lines))
    assert isinstance(verified, Examined), verified
    assert (verified.hosts, verified.size, verified.reports) == (1, 300, ())
