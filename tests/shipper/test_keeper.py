"""What the keeper of the positions forgets, and when. A real bucket."""

import asyncio
import time
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.message import Identity
from broker.wire.positions import Cursor, Positions
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.session import keep_positions
from shipper.shipping import LoopOptions, Shipping
from shipper.status.meter import AgentMeter
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection
from tests.shipper.saved import Saved


async def publish(_: Round) -> int:
    return 1


@pytest.mark.nats
async def test_files_that_are_gone_are_forgotten_but_the_last_64_and_only_once_a_look_has_told(
    tmp_path: Path, connection: Connection, logs_url: str
) -> None:
    now, live, clock = time.time_ns(), str(tmp_path / "app.log"), time.time_ns
    identity = Identity(7, 4, "ab", 0, "")
    known = {f"f{n:02}": Cursor(f"f{n:02}", live, 5, identity, now + n) for n in range(100)}
    source = Follower(Selection.of([live]), known.values(), new_id=str, clock=clock)
    options, meter = LoopOptions(1 << 20, "none", once=False), AgentMeter(clock)
    start = Positions(files=known)
    loop = Shipping(source, "1-aaaaaaaa", publish, start, options, asyncio.Event(), meter)

    keeping = asyncio.create_task(keep_positions(loop, Snapshots(connection, "web01"), clock, 0.1))
    async with asyncio.timeout(40):
        while not (saved := await asyncio.to_thread(Saved(logs_url).positions)).files:  # noqa: ASYNC110 - the broker is polled
            await asyncio.sleep(0.05)
        await source.look()
        while len(loop.positions.files) == len(known):  # noqa: ASYNC110 - a thread's doing is waited for
            await asyncio.sleep(0.01)
    keeping.cancel()
    await source.close()

    assert saved.files == known
    assert sorted(loop.positions.files) == sorted(known)[-64:]
