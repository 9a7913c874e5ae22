"""Tasks run on a real cluster whose machines have nothing of ours."""

from pathlib import Path

import pytest

from bench.processes import Processes
from receiver import task
from receiver.spark.session import spark_context
from tests.receiver.cluster import Cluster


@pytest.fixture
def cluster(processes: Processes, tmp_path: Path) -> Cluster:
    return Cluster(processes, tmp_path)


@pytest.mark.spark
def test_what_tasks_need_reaches_executors_that_have_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    def seen(_: int) -> tuple[str, str]:
        import zstandard

        return task.__file__ or "", zstandard.__file__ or ""

    with spark_context(
        cluster.url, slots=2, scratch=tmp_path / "scratch", executor_python=str(cluster.python)
    ) as spark:
        found = spark.parallelize(range(2), 2).map(seen).collect()

    for path in (path for paths in found for path in paths):
        assert path.startswith(str(tmp_path / "worker"))
        assert "/logship/" in path
