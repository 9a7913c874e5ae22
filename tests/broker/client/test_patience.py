"""A look is begun again while a leader may be missing, and only then."""

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
DENIED = Denied("permissions violation")


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is always there, as the connection to itself."""

    is_clustered: bool

    async def once(self, patience: float) -> "Server":
        return self


async def _found(trouble: Trouble, *, is_clustered: bool, patience: float = 60) -> int:
    """Return at which attempt there was an answer, the first one having met with trouble."""
    attempts = 0

    async def ask(_: Connection) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise trouble
        return attempts

    return await until_answered(cast("Connection", Server(is_clustered)), ask, patience)


@pytest.mark.parametrize("trouble", [LOST, NOBODY, NO_LEADER], ids=str)
async def test_a_cluster_may_be_without_a_leader_for_a_while(trouble: Trouble) -> None:
    assert await _found(trouble, is_clustered=True) == 2


@pytest.mark.parametrize("trouble", [NOBODY, NO_STREAM, DENIED], ids=str)
async def test_what_no_waiting_mends_is_told_at_once(trouble: Rejected) -> None:
    with pytest.raises(Rejected) as told:
        await _found(trouble, is_clustered=trouble is not NOBODY)

    assert told.value is trouble
