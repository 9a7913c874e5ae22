"""One Spark for all tests of this folder (it takes seconds to start, and a process holds one at a time), a partition, a scene."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from receiver.spark.session import spark_context
from tests.receiver.partition import Partition
from tests.receiver.scene import Scene
from tests.support.processes import Processes


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_context("local[2]") as context:
        session = SparkSession(context)
        try:
            yield session
        finally:
            with suppress(OSError, Py4JError):  # a JVM that has died has nothing to stop
                session.stop()


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


@pytest.fixture
def scene(logs_url: str, processes: Processes, tmp_path: Path) -> Scene:
    return Scene(logs_url, processes, tmp_path)
