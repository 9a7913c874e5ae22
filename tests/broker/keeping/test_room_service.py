from typing import Any

import pytest

from broker.keeping.room_service import minds_disk
from broker.settings import BrokerSettings


@pytest.mark.parametrize(
    ("settings", "minds"),
    [
        ({}, True),
        ({"on_full": "drop-oldest"}, True),
        ({"cluster": "c"}, True),
        ({"cluster": "c", "on_full": "drop-oldest"}, False),
        ({"max_store": 1_000_000}, False),
        ({"max_store": 1_000_000, "reserve": 1_000_000}, True),
    ],
)
def test_the_limit_follows_the_disk_unless_lines_could_be_dropped_for_another_servers(
    settings: dict[str, Any], minds: bool
) -> None:
    assert minds_disk(BrokerSettings(**settings)) is minds
