"""What the keeper of the positions forgets, and when. Real files and a real bucket."""

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.positions import Positions
from shipper.publish.rounds import Round
from shipper.publish.snapshots import Snapshots
from shipper.session import keep_positions
from shipper.shipping import LoopOptions, Shipping
from shipper.status.meter import AgentMeter
from shipper.tail.follower import Follower
from shipper.tail.notices import Notice
from shipper.tail.paths import Selection
from shipper.tail.reader import Block
from tests.shipper.saved import Saved
from tests.shipper.shipped import origins

pytestmark = pytest.mark.nats

ROTATED = 100
OPTIONS = LoopOptions(1 << 20, "none", once=False)


class Slow(Follower):
    """A follower of a file system that takes its time until `is_answering`."""

    is_answering: asyncio.Event

    async def look(self) -> list[Notice]:
        await self.is_answering.wait()
        return await super().look()


def follower(folder: Path, positions: Positions, prefix: str) -> Slow:
    numbers = itertools.count()
    follower = Slow(
        Selection.of([str(folder / "app.log*")]),
        positions.files.values(),
        new_id=lambda: f"{prefix}{next(numbers)}",
        clock=time.time_ns,
    )
    follower.is_answering = asyncio.Event()
    return follower


def shipping(source: Follower, positions: Positions) -> Shipping:
    async def publish(_: Round) -> int:
        return 1

    return Shipping(
        source, "1-aaaaaaaa", publish, positions, OPTIONS, asyncio.Event(), AgentMeter(time.time_ns)
    )


async def keep(connection: Connection, loop: Shipping) -> None:
    await keep_positions(loop, Snapshots(connection, "web01"), time.time_ns, 0.1)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - a thread's doing is waited for
            await asyncio.sleep(0.01)


@pytest.fixture
async def rotated(tmp_path: Path) -> Positions:
    """Return the positions of a log that was rotated many times: all of them at its path."""
    positions, source = Positions(), follower(tmp_path, Positions(), "first")
    source.is_answering.set()
    for number in range(ROTATED):
        (tmp_path / "app.log").write_bytes(b"%d\n" % number)
        await source.look()
        blocks = await gathered(source)
        positions = positions.advance(origins(blocks), number + 1)
        (tmp_path / "app.log").rename(tmp_path / f"app.log.{number}")
    await source.close()
    return positions


async def gathered(source: Follower) -> list[Block]:
    found: list[Block] = []
    while blocks := await source.gather(1 << 20):
        found += blocks
    return found


async def test_nothing_is_forgotten_before_a_look_has_told_which_files_are_there(
    tmp_path: Path, rotated: Positions, connection: Connection, logs_url: str
) -> None:
    source, saved = follower(tmp_path, rotated, "second"), Saved(logs_url)

    keeping = asyncio.create_task(keep(connection, shipping(source, rotated)))
    while not (found := await asyncio.to_thread(saved.positions)).files:  # noqa: ASYNC110 - the broker is polled
        await asyncio.sleep(0.05)
    keeping.cancel()
    await source.close()
    again = follower(tmp_path, found, "third")
    again.is_answering.set()
    await again.look()

    assert found.files == rotated.files
    assert await gathered(again) == []
    await again.close()


async def test_files_that_a_look_did_not_show_are_forgotten_but_the_last_64_of_a_path(
    tmp_path: Path, rotated: Positions, connection: Connection
) -> None:
    for number in range(ROTATED - 1):
        (tmp_path / f"app.log.{number}").unlink()
    source = follower(tmp_path, rotated, "second")
    loop = shipping(source, rotated)
    source.is_answering.set()
    await source.look()

    keeping = asyncio.create_task(keep(connection, loop))
    await until(lambda: len(loop.positions.files) < ROTATED)
    keeping.cancel()
    await source.close()

    assert [*loop.positions.files] == [*rotated.files][-65:]
