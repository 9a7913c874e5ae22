"""What the keeper of the positions forgets, and when. Real files and a real positions file."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from broker.block import Block
from shipper.cache import Cache
from shipper.files.selection import Selection
from shipper.following.follower import Follower
from shipper.keeper import Keeper
from shipper.notice import Notice
from shipper.pace import Pace
from shipper.positions import Positions
from shipper.publishing.rounds import Round
from shipper.shipping import Shipping
from shipper.telling.meter import Meter

ROTATED = 100
PACE = Pace(1 << 20, "none", once=False, patience=None)


class Waiting(Follower):
    """A follower of a file system that takes its time until `is_answering`."""

    is_answering: asyncio.Event

    async def look(self) -> list[Notice]:
        await self.is_answering.wait()
        return await super().look()


def follower(folder: Path, positions: Positions, prefix: str) -> Waiting:
    numbers = itertools.count()
    follower = Waiting(
        Selection.of([str(folder / "app.log*")]),
        positions.files.values(),
        agent="1-aaaaaaaa",
        new_id=lambda: f"{prefix}{next(numbers)}",
        clock=time.time_ns,
    )
    follower.is_answering = asyncio.Event()
    return follower


def shipping(source: Follower, positions: Positions) -> Shipping:
    async def publish(_: Round) -> int:
        return 1

    return Shipping(source, publish, positions, PACE, asyncio.Event(), Meter(time.time_ns))


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
        positions = positions.advance([block.origin for block in blocks], number + 1)
        (tmp_path / "app.log").rename(tmp_path / f"app.log.{number}")
    await source.close()
    return positions


async def gathered(source: Follower) -> list[Block]:
    found: list[Block] = []
    while blocks := await source.gather(1 << 20):
        found += blocks
    return found


async def test_nothing_is_forgotten_before_a_look_has_told_which_files_are_there(
    tmp_path: Path, rotated: Positions
) -> None:
    cache, source = Cache(tmp_path / "state"), follower(tmp_path, rotated, "second")
    cache.load()

    keeping = asyncio.create_task(Keeper(cache, time.time_ns).run(shipping(source, rotated)))
    await until((tmp_path / "state" / "positions.json").exists)
    keeping.cancel()
    await source.close()
    again = follower(tmp_path, cache.load(), "third")
    again.is_answering.set()
    await again.look()

    assert cache.load().files == rotated.files
    assert await gathered(again) == []
    await again.close()


async def test_files_that_a_look_did_not_show_are_forgotten_but_the_last_64_of_a_path(
    tmp_path: Path, rotated: Positions
) -> None:
    for number in range(ROTATED - 1):
        (tmp_path / f"app.log.{number}").unlink()
    cache, source = Cache(tmp_path / "state"), follower(tmp_path, rotated, "second")
    loop = shipping(source, rotated)
    source.is_answering.set()
    await source.look()

    keeping = asyncio.create_task(Keeper(cache, time.time_ns).run(loop))
    await until(lambda: len(loop.positions.files) < ROTATED)
    keeping.cancel()
    await source.close()

    assert [*loop.positions.files] == [*rotated.files][-65:]


async def test_a_file_that_stands_where_it_was_last_seen_is_not_forgotten(tmp_path: Path) -> None:
    (tmp_path / "gone.log").write_bytes(b"1\n")
    (tmp_path / "kept.log").write_bytes(b"2\n")
    source = Follower(
        Selection.of([str(tmp_path / "*.log")]),
        [],
        agent="1-aaaaaaaa",
        new_id=map(str, itertools.count()).__next__,
        clock=time.time_ns,
    )
    await source.look()
    origins = [block.origin for block in await gathered(source)]
    await source.close()
    (tmp_path / "gone.log").unlink()
    positions = Positions().advance(origins, 1)
    old = {name: replace(cursor, seen=0) for name, cursor in positions.files.items()}
    other = follower(tmp_path, Positions(), "other")
    other.is_answering.set()
    await other.look()
    loop = shipping(other, replace(positions, files=old))

    keeping = asyncio.create_task(Keeper(Cache(tmp_path / "state"), time.time_ns).run(loop))
    await until(lambda: len(loop.positions.files) < 2)
    keeping.cancel()
    await other.close()

    paths = [cursor.path for cursor in loop.positions.files.values()]
    assert paths == [str(tmp_path / "kept.log")]
