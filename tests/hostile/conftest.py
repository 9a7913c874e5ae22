"""A partition of which nothing was received, as in the receiver's tests."""

from pathlib import Path

import pytest

from tests.receiver.partition import Partition


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made
