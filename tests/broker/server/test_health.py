import json
from typing import Any

import pytest

from broker.server.health import failed_write

FULL = "JetStream stream 'LOGS > LOGS' write error: write /s/4.blk: no space left on device"
WRITE = "write /s/4.blk: no space left on device"


@pytest.mark.parametrize(
    ("data", "frozen"),
    [
        ({"status": "ok"}, ""),
        ({"status": "error", "error": "JetStream is not current"}, ""),
        ({"status": "unavailable", "error": FULL}, WRITE),
        ({"error": "JetStream not enabled (10076)"}, "JetStream not enabled"),  # one of three
        ({"errors": [{"error": "lags"}, {"error": FULL}]}, WRITE),
        (2, ""),
        ([], ""),
        ({}, ""),
    ],
)
def test_a_failed_write_is_told_apart_from_other_trouble(data: Any, frozen: str) -> None:
    assert failed_write(json.dumps({"data": data}).encode()) == frozen
