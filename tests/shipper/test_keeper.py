"""What the keeper of the positions forgets, and when."""

import asyncio
import time
from pathlib import Path

from broker.wire.message import Identity
from broker.wire.positions import Cursor, Positions
from shipper.publish.rounds import Round
from shipper.shipping import LoopOptions, Shipping
from shipper.status.report import AgentMeter
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection


async def publish(_: Round) -> int:
    return 1


async def test_files_that_are_gone_are_forgotten_but_the_last_64_and_only_once_a_look_has_told(
    tmp_path: Path,
) -> None:
    now, live, clock = time.time_ns(), str(tmp_path / "app.log"), time.time_ns
    identity = Identity(7, 4, "ab", 0, "")
    known = {f"f{n:02}": Cursor(f"f{n:02}", live, 5, identity, now + n) for n in range(100)}
    source = Follower(Selection.of([live]), known.values(), new_id=str, clock=clock)
    options, meter = LoopOptions(1 << 20, "none", once=False), AgentMeter(clock)
    start = Positions(files=known)
    loop = Shipping(source, "1-aaaaaaaa", publish, start, options, asyncio.Event(), meter)

    await loop.forget_gone(clock())
    before = loop.positions
    await source.look()
    await loop.forget_gone(clock())
    await source.close()

    assert before.files == known
    assert sorted(loop.positions.files) == sorted(known)[-64:]
