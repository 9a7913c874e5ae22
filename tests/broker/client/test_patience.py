"""A look is begun again while a leader may be missing, and only then."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from broker.client.answer import ConnectionLost, Denied, Rejected
from broker.client.connection import until_answered

Trouble = ConnectionLost | Rejected

LOST = ConnectionLost("no answer in 3 s")
NOBODY = Rejected(503, 0, "nobody listens there")
NO_LEADER = Rejected(503, 10008, "JetStream system temporarily unavailable")
NO_STREAM = Rejected(404, 10059, "stream not found")


@pytest.mark.parametrize(
    ("trouble", "is_clustered", "is_waited_out"),
    [
        *((trouble, True, True) for trouble in (LOST, NOBODY, NO_LEADER)),
        *((trouble, True, False) for trouble in (NO_STREAM, Denied("permissions violation"))),
        (NOBODY, False, False),
    ],
    ids=str,
)
async def test_a_cluster_may_be_without_a_leader_and_what_no_waiting_mends_is_told_at_once(
    trouble: Trouble, is_clustered: bool, is_waited_out: bool
) -> None:
    connection: Any = AsyncMock()  # to a server that is always there
    connection.once.return_value = SimpleNamespace(is_clustered=is_clustered)

    found = until_answered(connection, AsyncMock(side_effect=[trouble, "found"]), 60)

    assert await asyncio.gather(found, return_exceptions=True) == [
        "found" if is_waited_out else trouble
    ]
