"""Tasks run on a real cluster whose machines have nothing of ours."""

from pathlib import Path

import pytest

from receiver.consume import task
from receiver.spark.session import spark_context
from tests.receiver.apart import apart
from tests.receiver.cluster import Cluster
from tests.support.processes import Processes


def where_from(url: str, python: str) -> list[str]:
    def seen(_: int) -> tuple[str, str]:
        import zstandard

        return task.__file__ or "", zstandard.__file__ or ""

    with spark_context(url, slots=2, executor_python=python) as spark:
        return [
            path for paths in spark.parallelize(range(2), 2).map(seen).collect() for path in paths
        ]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_what_tasks_need_reaches_executors_that_have_nothing(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(processes, tmp_path)

    found = apart(where_from, cluster.url, str(cluster.python))

    assert len(found) == 4
    for path in found:
        assert path.startswith(str(tmp_path / "worker"))
        assert "/logship/" in path
