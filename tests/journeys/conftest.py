"""A stage for all journeys of a worker: one broker, one receiver with two partitions, real shippers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Processes
from tests.support.stage import Stage
from tests.support.suite import Suite


@pytest.fixture(scope="session")
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Processes, Stage]]:
    folder: Path = tmp_path_factory.mktemp("journeys")
    with Processes(folder) as programs:
        yield programs, Stage(Suite(folder, programs, partitions=2))


@pytest.fixture
def stage(_programs: tuple[Processes, Stage]) -> Iterator[Stage]:
    programs, stage = _programs
    stage.set_up()
    yield stage
    programs.end_all(keep=(stage.broker, stage.receiver))
