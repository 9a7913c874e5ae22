"""Files that were found and of which nothing is acknowledged yet are in the saved positions, at 0 and no further."""

import asyncio
import itertools
import time
from dataclasses import replace
from pathlib import Path

from broker.block import Block, Identity, Origin, Span
from shipper.cache import Cache
from shipper.cursor import Cursor
from shipper.files.selection import Selection
from shipper.following.follower import Follower
from shipper.keeper import Keeper
from shipper.notice import Notice, NoticeKind
from shipper.pace import Pace
from shipper.positions import Positions
from shipper.publishing.rounds import Round
from shipper.shipping import Shipping
from shipper.telling.meter import Meter

IDENTITY = Identity(1, 4, "ab", 0, "")


def follower(logs: Path, positions: Positions, prefix: str, *, from_end: bool = False) -> Follower:
    numbers = itertools.count()
    return Follower(
        replace(Selection.of([str(logs / "app.log")]), from_end=from_end),
        positions.files.values(),
        agent="1-aaaaaaaa",
        new_id=lambda: f"{prefix}{next(numbers)}",
        clock=time.time_ns,
    )


async def ship_to_a_silent_broker(follower: Follower) -> Positions:
    asked = asyncio.Event()

    async def never(_: Round) -> int:
        asked.set()
        await asyncio.Event().wait()
        return 0

    pace = Pace(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(follower, never, Positions(), pace, asyncio.Event(), Meter(time.time_ns))

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            await shipping.run(group)

    running = asyncio.create_task(run())
    await asked.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await follower.close()
    return shipping.positions


async def test_a_backlog_that_no_broker_took_is_found_again_after_a_rotation_and_a_crash(
    tmp_path: Path,
) -> None:
    logs, cache = tmp_path / "logs", Cache(tmp_path / "state")
    logs.mkdir()
    cache.load()
    (logs / "app.log").write_bytes(b"one\n")

    cache.save(await ship_to_a_silent_broker(follower(logs, Positions(), "first")))
    (logs / "app.log").rename(logs / "app.log.1")
    (logs / "app.log").write_bytes(b"two\n")
    loaded = cache.load()
    again = follower(logs, loaded, "second")
    await again.look()
    blocks = await again.gather(1 << 20)
    await again.close()

    assert [cursor.offset for cursor in loaded.files.values()] == [0]
    assert b"".join(block.payload for block in blocks) == b"one\ntwo\n"


async def test_where_a_file_was_begun_at_its_end_is_saved_before_a_line_of_it_is_read(
    tmp_path: Path,
) -> None:
    """Were it not, a crash would begin it anew at an end that lies behind lines that nobody shipped."""
    cache, read = Cache(tmp_path / "state"), asyncio.Event()
    cache.load()
    (tmp_path / "app.log").write_bytes(b"old\n")

    class Read(Follower):
        async def gather(self, budget: int) -> list[Block]:
            blocks = await super().gather(budget)
            read.set()
            await asyncio.Event().wait()
            return blocks

    async def never(_: Round) -> int:
        return 0

    source = Read(
        replace(Selection.of([str(tmp_path / "app.log")]), from_end=True),
        [],
        agent="1-aaaaaaaa",
        new_id=lambda: "first",
        clock=time.time_ns,
    )
    pace = Pace(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(source, never, Positions(), pace, asyncio.Event(), Meter(time.time_ns))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shipping.run(group, Keeper(cache, time.time_ns).save))
        await read.wait()
        running.cancel()
    await source.close()
    with (tmp_path / "app.log").open("ab") as log:
        log.write(b"new\n")
    again = follower(tmp_path, cache.load(), "second", from_end=True)
    await again.look()
    blocks = await again.gather(1 << 20)
    await again.close()

    assert b"".join(block.payload for block in blocks) == b"new\n"


async def test_a_file_found_and_not_begun_is_not_forgotten_by_a_look_that_failed(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.log").write_bytes(b"one\n")
    found = await ship_to_a_silent_broker(follower(tmp_path, Positions(), "first"))

    class Failing(Follower):
        async def look(self) -> list[Notice]:
            looked.set()
            return [Notice(NoticeKind.UNREADABLE, "/log", "cannot be listed now")]

    async def never(_: Round) -> int:
        return 0

    looked, stopping = asyncio.Event(), asyncio.Event()
    source = Failing(
        Selection.of([str(tmp_path / "app.log")]),
        found.files.values(),
        agent="1-aaaaaaaa",
        new_id=lambda: "second",
        clock=time.time_ns,
    )
    pace = Pace(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(source, never, found, pace, stopping, Meter(time.time_ns))
    async with asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group))
        await looked.wait()
        stopping.set()
    await source.close()

    assert shipping.positions.files == found.files != {}


def test_found_files_stand_at_0_until_something_is_stored_and_go_when_they_are_gone() -> None:
    origin = Origin("1-aaaaaaaa", "/a", Span("a", 0, 10), IDENTITY, 1, 5)
    starts = {name: Cursor(name, f"/{name}", 0, IDENTITY, 3) for name in ("a", "b")}

    found = Positions().found(starts.values())
    stored = found.advance([origin], 7)

    assert found.files == starts
    assert {name: c.offset for name, c in stored.found(starts.values()).files.items()} == {
        "a": 10,
        "b": 0,
    }
    assert set(stored.found([]).files) == {"a"}
    assert stored.begun() == {"a"}
    assert found.found(starts.values()) is found
