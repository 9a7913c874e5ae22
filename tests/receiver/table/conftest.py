"""What tests of tables share."""

from pathlib import Path

import pytest

from receiver.table.location import Location
from tests.receiver.table.tabled import Tabled


@pytest.fixture
def tabled(logs_url: str, tmp_path: Path) -> Tabled:
    return Tabled(logs_url, Location(str(tmp_path / "table")))
