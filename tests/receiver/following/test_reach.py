"""Executors that do not see the output folder are found at the start, not by damage."""

from pathlib import Path

import pytest

from bench.processes import Processes
from broker.exits import ConfigurationError
from receiver.following.reach import check_reach
from receiver.spark.session import spark_context
from receiver.writing.place import place_of
from tests.receiver.cluster import Cluster, can_be_blind

pytestmark = pytest.mark.spark


@pytest.mark.skipif(not can_be_blind(), reason="no rights to give a process mounts of its own")
def test_an_executor_that_sees_another_folder_is_named_at_the_start(
    processes: Processes, tmp_path: Path
) -> None:
    shared, hidden = tmp_path / "shared", tmp_path / "hidden"
    for folder in (shared, hidden):
        folder.mkdir()
    cluster = Cluster(processes, tmp_path, hidden=hidden)

    with spark_context(
        cluster.url, slots=2, scratch=tmp_path / "scratch", executor_python=str(cluster.python)
    ) as spark:
        check_reach(spark, (place_of(shared),))
        with pytest.raises(ConfigurationError, match=r"hidden on .* is not the folder") as raised:
            check_reach(spark, (place_of(shared), place_of(hidden)))

    assert "shared on" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_python_that_is_not_there_is_said_in_one_line(
    processes: Processes, tmp_path: Path
) -> None:
    cluster = Cluster(processes, tmp_path, workers=1)

    with (
        spark_context(
            cluster.url, slots=1, scratch=tmp_path / "scratch", executor_python="/no/python3"
        ) as spark,
        pytest.raises(ConfigurationError, match=r"cannot run our tasks: .*/no/python3") as raised,
    ):
        check_reach(spark, (place_of(tmp_path),))

    assert len(str(raised.value).splitlines()) == 1
