"""A look is begun again while a leader may be missing, and only then."""

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest

from broker.client.answer import ConnectionLost, Denied, Rejected
from broker.client.connection import Connection, until_answered

Trouble = ConnectionLost | Rejected

LOST = ConnectionLost("no answer in 3 s")
NOBODY = Rejected(503, 0, "nobody listens there")
NO_LEADER = Rejected(503, 10008, "JetStream system temporarily unavailable")
NO_STREAM = Rejected(404, 10059, "stream not found")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is always there, as the connection to itself."""

    is_clustered: bool

    async def once(self, patience: float) -> "Server":
        return self


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
    answers: list[Trouble | str] = [trouble, "found"]

    async def ask(_: Connection) -> str:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    found = until_answered(cast("Connection", Server(is_clustered)), ask, 60)

    assert await asyncio.gather(found, return_exceptions=True) == [
        "found" if is_waited_out else trouble
    ]
