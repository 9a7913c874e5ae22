"""One Spark for all tests of this folder: it takes seconds to start, and a process holds one at a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from receiver.session import spark_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    with spark_session("local[2]", app_name="tests", scratch=scratch) as session:
        yield session
