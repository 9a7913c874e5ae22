"""A receiver that may do nothing but receive its own partition: bell, stays, commits, the word to leave, sign of life."""

import asyncio
from pathlib import Path

import pytest

from bench.processes import Processes
from receiver.assignment import Stay
from receiver.following.presence import Life, Presence, life_of
from receiver.outcome import Ending
from tests import secured
from tests.receiver.following.test_follower import Loop
from tests.receiver.partition import Partition

pytestmark = pytest.mark.nats


async def test_least_rights_suffice_to_receive_and_to_be_told_to_leave(
    processes: Processes, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(
        secured.start_secured, processes, tmp_path, secured.receiver("central", 0)
    )
    anybody = Partition(server.url(), tmp_path)
    central = Partition(server.url("central"), tmp_path)
    expected = b""

    async with Loop(central, stay=Stay(60.0, 60.0, 0.01)) as loop:
        for line in (b"1\n", b"2\n"):
            await asyncio.to_thread(anybody.lines, "web01", line)
            expected += line
            await loop.has(expected)
        present = Presence(loop.connection, lambda: b"central")
        await present.begin()
        assert await life_of(loop.connection, present.address) is Life.ALIVE
        loop.stop.set()
        await asyncio.wait_for(asyncio.shield(loop.running), 20)

    assert [report.ended for report in loop.reports] == [Ending.ASKED]
    offset = await asyncio.to_thread(anybody.offset)
    assert (offset.next, offset.released) == (3, True)
    assert "Violation" not in server.said()
