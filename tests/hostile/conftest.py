"""A partition as in the receiver's tests, and two hosts: one that means harm, and one that is not to notice."""

from pathlib import Path

import pytest

from tests.receiver.partition import Partition


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    """Return partition 0, claimed, of which nothing was received."""
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made
