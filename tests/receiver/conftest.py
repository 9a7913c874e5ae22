"""What the receiver's tests share: a partition, and a scene."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.receiver.faulty_disk import recorded_cuts
from tests.receiver.partition import Partition
from tests.receiver.scene import Scene
from tests.support.processes import Processes


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


@pytest.fixture
def cuts() -> Iterator[list[str]]:
    """Return the files that were truncated in this process."""
    with recorded_cuts() as found:
        yield found


@pytest.fixture
def scene(logs_url: str, processes: Processes, tmp_path: Path) -> Scene:
    return Scene(logs_url, processes, tmp_path)
