"""Files that were found and of which nothing is acknowledged yet are in the saved positions, at 0 and no further."""

import asyncio
import itertools
import time
from dataclasses import replace
from pathlib import Path

from broker.wire.message import Identity, Origin, Section, Span
from broker.wire.positions import Cursor, Positions
from shipper.line_filter import Rules
from shipper.publish.rounds import Round
from shipper.settings import expression
from shipper.shipping import LoopOptions, Shipping
from shipper.status.meter import Meter
from shipper.tail.follower import Follower
from shipper.tail.notices import Notice, NoticeKind
from shipper.tail.paths import Selection
from shipper.tail.reader import Block
from tests.shipper.shipped import AGENT

IDENTITY = Identity(1, 4, "ab", 0, "")


def follower(logs: Path, positions: Positions, prefix: str, *, from_end: bool = False) -> Follower:
    numbers = itertools.count()
    return Follower(
        replace(Selection.of([str(logs / "app.log")]), from_end=from_end),
        positions.files.values(),
        new_id=lambda: f"{prefix}{next(numbers)}",
        clock=time.time_ns,
    )


def saved(positions: Positions) -> Positions:
    """Return positions as the next start reads them from the broker."""
    return Positions.decode(positions.encode())


async def ship_to_a_silent_broker(follower: Follower) -> Positions:
    asked = asyncio.Event()

    async def never(_: Round) -> int:
        asked.set()
        await asyncio.Event().wait()
        return 0

    options = LoopOptions(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(
        follower, AGENT, never, Positions(), options, asyncio.Event(), Meter(time.time_ns)
    )

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
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "app.log").write_bytes(b"one\n")

    loaded = saved(await ship_to_a_silent_broker(follower(logs, Positions(), "first")))
    (logs / "app.log").rename(logs / "app.log.1")
    (logs / "app.log").write_bytes(b"two\n")
    again = follower(logs, loaded, "second")
    await again.look()
    blocks = await again.gather(1 << 20)
    await again.close()

    assert [cursor.offset for cursor in loaded.files.values()] == [0]
    assert b"".join(block.lines for block in blocks) == b"one\ntwo\n"


async def test_where_a_file_was_begun_at_its_end_is_saved_before_a_line_of_it_is_read(
    tmp_path: Path,
) -> None:
    """Were it not, a crash would begin it anew at an end that lies behind lines that nobody shipped."""
    snapshots, read = [Positions()], asyncio.Event()
    (tmp_path / "app.log").write_bytes(b"old\n")

    class Read(Follower):
        async def gather(self, budget: int) -> list[Block]:
            blocks = await super().gather(budget)
            read.set()
            await asyncio.Event().wait()
            return blocks

    async def save(positions: Positions) -> None:
        snapshots.append(saved(positions))

    async def never(_: Round) -> int:
        return 0

    source = Read(
        replace(Selection.of([str(tmp_path / "app.log")]), from_end=True),
        [],
        new_id=lambda: "first",
        clock=time.time_ns,
    )
    options = LoopOptions(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(
        source, AGENT, never, Positions(), options, asyncio.Event(), Meter(time.time_ns)
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shipping.run(group, save))
        await read.wait()
        running.cancel()
    await source.close()
    with (tmp_path / "app.log").open("ab") as log:
        log.write(b"new\n")
    again = follower(tmp_path, snapshots[-1], "second", from_end=True)
    await again.look()
    blocks = await again.gather(1 << 20)
    await again.close()

    assert b"".join(block.lines for block in blocks) == b"new\n"


async def test_no_line_is_read_before_the_snapshot_is_there_while_looks_and_deletions_go_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "app.log").write_bytes(b"one\n")
    asked, answer, told = asyncio.Event(), asyncio.Event(), asyncio.Event()
    looks, rounds = 0, list[Round]()

    class Looking(Follower):
        async def look(self) -> list[Notice]:
            nonlocal looks
            looks += 1
            notices = await super().look()
            if any(notice.kind is NoticeKind.GONE for notice in notices):
                told.set()
            return notices

    async def save(_: Positions) -> None:
        asked.set()
        await answer.wait()

    async def publish(round_: Round) -> int:
        rounds.append(round_)
        stopping.set()
        return 2

    stopping = asyncio.Event()
    selection = Selection.of([str(tmp_path / name) for name in ("app.log", "gone.log")])
    (tmp_path / "gone.log").write_bytes(b"two\n")
    source = Looking(
        selection, [], new_id=map(str, itertools.count()).__next__, clock=time.time_ns, hold=0
    )
    options = LoopOptions(
        1 << 20, "none", once=False, patience=None, scan_after=0.01, scan_every=0.1
    )
    shipping = Shipping(source, AGENT, publish, Positions(), options, stopping, Meter(time.time_ns))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group, save))
        await asked.wait()
        (tmp_path / "gone.log").unlink()
        await told.wait()
        seen, read = looks, len(rounds)
        answer.set()
    await source.close()

    assert seen > 1
    assert read == 0
    assert b"".join(round_.payload for round_ in rounds) == b"one\n"


async def test_a_file_found_while_all_lines_are_left_out_is_saved_before_it_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.log").write_bytes(b"noise " * 20_000 + b"\n")
    saved_files: set[str] = set()

    class Finding(Follower):
        async def gather(self, budget: int) -> list[Block]:
            blocks = await super().gather(budget)
            (tmp_path / "b.log").write_bytes(b"news\n")
            await asyncio.sleep(0.1)  # until another scan is due
            return blocks

    async def save(positions: Positions) -> None:
        saved_files.update(positions.files)

    async def publish(round_: Round) -> int:
        assert {section.span.file for section in round_.origin.sections} <= saved_files
        stopping.set()
        return 1

    stopping = asyncio.Event()
    source = Finding(
        Selection.of([str(tmp_path / "*.log")]),
        [],
        new_id=map(str, itertools.count()).__next__,
        clock=time.time_ns,
    )
    rules = Rules(exclude=(expression("noise"),))
    options = LoopOptions(
        1 << 20, "none", once=False, patience=None, scan_after=0.0, scan_every=0.0, rules=rules
    )
    shipping = Shipping(source, AGENT, publish, Positions(), options, stopping, Meter(time.time_ns))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group, save))
    await source.close()

    assert len(saved_files) == 2


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
        new_id=lambda: "second",
        clock=time.time_ns,
    )
    options = LoopOptions(1 << 20, "none", once=False, patience=None)
    shipping = Shipping(source, AGENT, never, found, options, stopping, Meter(time.time_ns))
    async with asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group))
        await looked.wait()
        stopping.set()
    await source.close()

    assert shipping.positions.files == found.files != {}


def test_found_files_stand_at_0_until_something_is_stored_and_go_when_they_are_gone() -> None:
    origin = Origin("1-aaaaaaaa", 5, (Section("/a", Span("a", 0, 10), 10, 1, IDENTITY),))
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
