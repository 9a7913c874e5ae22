"""Executors that do not see the output folder, or cannot run our tasks, are found at the start, not by damage."""

import asyncio
from pathlib import Path

import pytest

from broker.app.exits import ConfigurationError, OperatorError
from receiver.consume.assignment import MarkedFolder
from receiver.consume.marked_folders import marked_folder
from receiver.driver.jobs import check_executors, watch_executors
from receiver.spark.session import spark_context
from tests.receiver.apart import apart
from tests.receiver.cluster import Cluster, can_be_blind
from tests.support.processes import Processes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def objections(url: str, python: str, *asked: tuple[MarkedFolder, ...]) -> list[str]:
    """Return what is said against each of several sets of folders."""
    said = []
    with spark_context(url, slots=2, executor_python=python) as spark:
        for folders in asked:
            try:
                check_executors(spark, folders)
                said.append("")
            except ConfigurationError as error:
                said.append(str(error))
    return said


@pytest.mark.long
@pytest.mark.skipif(not can_be_blind(), reason="no rights to give a process mounts of its own")
def test_an_executor_that_sees_another_folder_is_named_at_the_start_and_a_python_that_is_not_there(
    processes: Processes, tmp_path: Path
) -> None:
    shared, hidden = tmp_path / "shared", tmp_path / "hidden"
    for folder in (shared, hidden):
        folder.mkdir()
    cluster = Cluster(processes, tmp_path, hidden=hidden)
    folders = marked_folder(shared), marked_folder(hidden)

    well, blind = apart(objections, cluster.url, str(cluster.python), folders[:1], folders)
    (no_python,) = apart(objections, cluster.url, "/no/python3", folders[:1])

    assert well == ""
    assert "hidden on" in blind
    assert "is not the folder" in blind
    assert "shared on" not in blind
    assert "cannot run our tasks: " in no_python
    assert "/no/python3" in no_python
    assert len(blind.splitlines()) == len(no_python.splitlines()) == 1


def watched() -> str:
    with spark_context("local[1]") as spark:  # which has no executors
        try:
            asyncio.run(watch_executors(spark, 0.3))
        except OperatorError as error:
            return str(error)


def test_a_cluster_without_executors_for_long_ends_the_receiver() -> None:
    assert "has had no executor for us for 0.3 s; start again" in apart(watched)
