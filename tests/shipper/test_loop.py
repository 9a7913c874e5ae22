"""The main loop, with a broker that accepts everything."""

import asyncio
import errno
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.backlog import LINE_BYTES, write_backlog
from nats_logship.app.exits import OperatorError
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Identity, decode_payload
from nats_logship.wire.positions import Cursor, Positions
from shipper.clock import Clock
from shipper.loop import Intervals, ShippingLoop
from shipper.publish.publisher import Publisher, RoundTooLarge
from shipper.publish.rounds import LEAST_SIZE, Round
from shipper.settings import ShipperSettings
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.block import Block
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection
from shipper.sources.notices import Notice
from shipper.status.report import AgentMeter
from tests.shipper.conftest import until

INTERVALS = Intervals(scan_after=0.01, scan_every=0.01)


class AcceptingPublisher(Publisher):
    """A publisher whose broker accepts everything once it `answers`."""

    def __init__(self) -> None:
        super().__init__(Connection([], "test"), "web01", Clock())
        self.max_payload = 8 << 20
        self.rounds: list[Round] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def publish(self, round_: Round) -> int:
        await self.answers.wait()
        self.rounds.append(round_)
        return len(self.rounds)

    async def save(self, positions: Positions) -> None:
        pass

    @property
    def lines(self) -> bytes:
        return b"".join(decode_payload(one.headers, one.payload) for one in self.rounds)


def loop_of(follower: Follower, broker: AcceptingPublisher, **settings: Any) -> ShippingLoop:
    chosen = ShipperSettings(round_size=1 << 20, **settings)
    return ShippingLoop(follower, broker, chosen, AgentMeter(time.time_ns), INTERVALS)


class Watched(Follower):
    """A follower that counts scans and gatherings, and moves files just before the first ones."""

    gathered = scans = 0
    before_gathering: Sequence[Callable[[], None]] = ()

    async def scan(self) -> list[Notice]:
        self.scans += 1
        return await super().scan()

    async def gather(self, budget: int) -> list[Block]:
        for move in self.before_gathering[:1]:
            move()
        self.before_gathering = self.before_gathering[1:]
        blocks = await super().gather(budget)
        self.gathered += bool(blocks)
        return blocks


def follower_of(folder: Path, **options: Any) -> Watched:
    """Follow the logs of a folder."""
    selection, new_id = Selection.of([str(folder / "*.log")]), map(str, itertools.count()).__next__
    return Watched(selection, [], new_id=new_id, clock=Clock(), **options)


async def ship_once(follower: Follower) -> bytes:
    broker = AcceptingPublisher()
    shipping = loop_of(follower, broker, once=True, compression="none")
    async with asyncio.TaskGroup() as group:
        await shipping.run(group)
    try:
        shipping.goals.conclude(follower, ())
    finally:
        await follower.close()
    return broker.lines


async def test_a_scan_amid_which_the_machine_was_suspended_delays_the_next_one_little(
    tmp_path: Path,
) -> None:
    class Suspended(Watched):
        async def scan(self) -> list[Notice]:
            if self.scans == 3:
                await asyncio.sleep(2.0)
            return await super().scan()

    selection, new_id = (
        Selection.of([str(tmp_path / "*.log")]),
        map(str, itertools.count()).__next__,
    )
    follower = Suspended(selection, [], new_id=new_id, clock=Clock())
    broker = AcceptingPublisher()
    shipping = loop_of(follower, broker)
    async with asyncio.TaskGroup() as group, asyncio.timeout(10):
        group.create_task(shipping.run(group))
        await until(lambda: follower.scans > 4)
        (tmp_path / "new.log").write_bytes(LINE)
        await until(lambda: broker.lines == LINE)
        shipping.stop()


def test_scans_of_slow_folders_are_apart_but_no_longer_than_half_a_minute() -> None:
    intervals = Intervals()

    assert intervals.scan_interval(0.5, is_due=True) == pytest.approx(5.0)
    assert intervals.scan_interval(0.1, is_due=False) == pytest.approx(10.0)
    assert {intervals.scan_interval(60.0, is_due=due) for due in (False, True)} == {30.0}


async def test_once_fails_if_a_disk_fails_in_the_middle_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.log").write_bytes(LINE * 100_000)  # more than a block
    follower = follower_of(tmp_path)
    read = os.preadv

    def broken(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        if offset:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", broken)

    with pytest.raises(OperatorError, match=r"a\.log: cannot be read: Input/output error"):
        await ship_once(follower)


LINE = b"a line of a file on a failing disk\n"


async def test_once_reads_files_that_are_renamed_meanwhile(tmp_path: Path) -> None:
    names = ["a.log", "b.log", "c.log"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode() + b"\n")

    def rotate() -> None:
        for name in names:
            (tmp_path / name).rename(tmp_path / f"{name}.{time.time_ns()}")
            (tmp_path / name).touch()

    follower = follower_of(tmp_path, open_files=1)
    follower.before_gathering = [rotate, rotate]

    assert sorted((await ship_once(follower)).split()) == [b"a.log", b"b.log", b"c.log"]


async def test_once_waits_for_the_last_line_of_a_rotated_file(tmp_path: Path) -> None:
    (tmp_path / "a-20260101.log").write_bytes(b"1\nunfinished")
    (tmp_path / "a.log").write_bytes(b"2\n")

    shipped = await ship_once(follower_of(tmp_path, grace=0.2))

    assert shipped == b"1\nunfinished2\n"


@pytest.fixture
async def backlog(tmp_path: Path) -> AsyncIterator[Watched]:
    write_backlog(tmp_path / "a.log", 8_000_000 // LINE_BYTES)
    follower = follower_of(tmp_path)
    yield follower
    await follower.close()


@pytest.mark.parametrize("once", [True, False])
async def test_one_round_is_read_ahead_while_the_broker_does_not_answer(
    tmp_path: Path, backlog: Watched, *, once: bool
) -> None:
    """One round is in flight, one is compressed, one is read; scans go on, and all is shipped."""
    broker = AcceptingPublisher()
    broker.answers.clear()
    shipping = loop_of(backlog, broker, once=once)
    async with asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group))
        await until(lambda: backlog.gathered == 3)
        enough = backlog.scans + 3
        await until(lambda: backlog.scans >= enough)
        held = backlog.gathered
        (tmp_path / "b.log").touch()
        await until(lambda: len(backlog.files()) == 2)
        broker.answers.set()
        await until(lambda: len(broker.lines) >= 8_000_000)
        shipping.stop()

    assert held == 3
    assert broker.lines == (tmp_path / "a.log").read_bytes()


RATE = 1_000_000  # bytes per second


async def test_a_backlog_keeps_to_the_rate_also_after_an_outage(
    tmp_path: Path, backlog: Watched
) -> None:
    broker = AcceptingPublisher()
    shipping = loop_of(backlog, broker, max_rate=RATE)
    passed: list[tuple[int, float]] = []  # the most bytes in the time that they took
    async with asyncio.TaskGroup() as group:
        group.create_task(shipping.run(group))
        for _ in range(2):  # the second time after an outage
            before, began = len(broker.lines), time.monotonic()
            await until(lambda: len(broker.lines) - before >= 3 * RATE)  # noqa: B023
            passed.append((len(broker.lines) - before, time.monotonic() - began))
            broker.answers.clear()
            await asyncio.sleep(2.5)
            broker.answers.set()
        shipping.change(ShipperSettings())
        await until(lambda: len(broker.lines) >= 8_000_000)
        shipping.stop()

    # a second's worth is there at the start, and one more round was in flight in the outage
    assert passed[0][0] <= 1.1 * RATE * (1 + passed[0][1])
    assert passed[1][0] <= 1.1 * RATE * (2 + passed[1][1])
    assert broker.lines == (tmp_path / "a.log").read_bytes()


class RefusingPublisher(AcceptingPublisher):
    """A publisher whose broker answers all but rounds."""

    async def publish(self, round_: Round) -> int:
        raise RoundTooLarge("no answer")

    async def prepare(self) -> None:
        pass

    async def open_session(self, known: Positions) -> Positions:
        return known


async def test_one_round_that_was_too_large_cuts_no_entry_of_a_journal(backlog: Watched) -> None:
    shipping = loop_of(backlog, RefusingPublisher())
    found = [shipping.sender.read_sizes()[1:]]
    for _ in range(2):
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group, asyncio.timeout(20):
                await shipping.run(group)
        found.append(shipping.sender.read_sizes()[1:])

    assert found == [(2**20, 2**20), (LEAST_SIZE, 2**20), (LEAST_SIZE, LEAST_SIZE)]


async def test_the_end_does_not_wait_for_the_rate(backlog: Watched) -> None:
    broker = AcceptingPublisher()
    shipping = loop_of(backlog, broker, max_rate=1024)  # the backlog would take two hours
    async with asyncio.TaskGroup() as group, asyncio.timeout(20):
        group.create_task(shipping.run(group))
        await until(lambda: bool(shipping.sender.limit.holding_seconds))
        shipping.stop()

    assert len(broker.lines) < 100_000


def test_rounds_of_a_busy_log_follow_sooner_than_small_rounds() -> None:
    intervals = Intervals()

    assert intervals.interval_after(1, 100, 0.1) == intervals.interval
    assert intervals.interval_after(500, 50_000, 0.1) == pytest.approx(0.034)
    assert intervals.interval_after(1_000_000, 10**8, 0.1) == intervals.least_interval
    assert intervals.interval_after(1000, 10**5, float("inf")) == intervals.interval


@pytest.mark.parametrize(
    ("lines", "size", "seconds", "asked", "found"),
    [
        pytest.param(1, 100, 0.1, 0.1, 0.2, id="the host's own is longer"),
        pytest.param(500, 50_000, 0.1, 0.5, 0.5, id="the broker's is longer"),
        pytest.param(1, 100, float("inf"), 2.0, 2.0, id="after a silence"),
        pytest.param(5000, 500_000, 0.5, 2.0, 0.524, id="until the next round is not small"),
        pytest.param(9_000_000, 10**9, 1.0, 2.0, 0.02, id="a loud host keeps its own"),
    ],
)
def test_the_broker_sets_the_least_interval_of_small_rounds(
    lines: int, size: int, seconds: float, asked: float, found: float
) -> None:
    interval = Intervals().interval_after(lines, size, seconds, asked)

    assert interval == pytest.approx(found, abs=0.001)


async def test_once_reads_a_line_to_its_end_however_long_the_search_for_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b"x" * 4_000_000 + b"\n"
    (tmp_path / "a.log").write_bytes(line)
    (tmp_path / "b.log").write_bytes(b"short\n")
    follower = follower_of(tmp_path, block_size=1000, max_line=1000)
    monkeypatch.setattr(follower, "resize", lambda *_: None)  # 64,000 bytes are searched at a time

    shipped = await ship_once(follower)

    assert line in shipped
    assert len(shipped) == len(line) + len(b"short\n")


async def test_all_but_5064_gone_files_of_a_path_are_forgotten_after_the_first_scan(
    tmp_path: Path,
) -> None:
    now, live = time.time_ns(), str(tmp_path / "app.log")
    identity = Identity(7, 4, "ab", 0, "")
    known = {f"f{n:04}": Cursor(f"f{n:04}", live, 5, identity, now + n) for n in range(5100)}
    follower = Follower(Selection.of([live]), known.values(), new_id=str, clock=Clock())
    acknowledged = Acknowledged()
    acknowledged.positions = Positions(known)

    await acknowledged.forget_gone(follower, now)
    before = acknowledged.positions
    await follower.scan()
    await acknowledged.forget_gone(follower, now)
    await follower.close()

    assert before.files == known
    assert sorted(acknowledged.positions.files) == sorted(known)[-5064:]
