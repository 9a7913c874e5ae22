"""Lines that are left out, on their way through follower and loop: shipped around, passed over once, seen by nobody as a gap."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.wire.positions import Positions
from receiver.consume.judging import judge
from shipper.line_filter import Rules
from shipper.publish.rounds import Round
from shipper.settings import expression
from shipper.shipping import LoopOptions, Shipping
from shipper.status.meter import Meter
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection
from shipper.tail.reader import Block
from tests.shipper.shipped import AGENT, blocks_of, origins


@dataclass
class Host:
    """An agent with `once`, run as often as wanted, on a broker that takes everything."""

    folder: Path
    blocks: list[Block] = field(default_factory=list)
    positions: Positions = field(default_factory=Positions)
    read: int = 0
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    async def ship(self, *exclude: str) -> bytes:
        before = len(self.blocks)
        follower = Follower(
            Selection.of([str(self.folder / "*.log")]),
            self.positions.files.values(),
            new_id=lambda: f"id{next(self.numbers)}",
            clock=time.time_ns,
            block_size=100,
            max_line=300,
        )
        began = sum(cursor.offset for cursor in self.positions.files.values())
        rules = Rules(exclude=tuple(map(expression, exclude)))
        options = LoopOptions(1 << 20, "none", once=True, patience=10.0, rules=rules)
        shipping = Shipping(
            follower,
            AGENT,
            self._publish,
            self.positions,
            options,
            asyncio.Event(),
            Meter(time.time_ns),
        )
        async with asyncio.TaskGroup() as group:
            await shipping.run(group)
        self.read = sum(state.offset for state in follower.states()) - began
        await follower.close()
        self.positions = Positions.decode(shipping.positions.encode())
        return b"".join(block.lines for block in self.blocks[before:])

    async def _publish(self, round_: Round) -> int:
        self.blocks += blocks_of(round_.origin, round_.payload)
        return len(self.blocks)

    def write(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def received(self) -> bytes:
        """Return what a receiver makes of the sections; every one follows the one before."""
        reached: dict[str, int] = {}
        lines = b""
        for block in self.blocks:
            section, file = block.section, block.section.span.file
            judged = judge(reached.get(file), section, "web01", 1)
            assert judged.finding is None
            assert judged.skip == 0
            reached[file] = section.span.end
            lines += block.lines
        return lines


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


async def test_lines_are_left_out_and_the_blocks_cover_them(host: Host) -> None:
    host.write("a.log", b"".join(b"%d debug\n%d error\n" % (n, n) for n in range(1000)))

    await host.ship("debug")

    assert host.received() == b"".join(b"%d error\n" % n for n in range(1000))


async def test_a_long_tail_that_is_left_out_is_passed_over_once_and_nothing_is_behind(
    host: Host,
) -> None:
    tail = b"debug and so on\n" * 20_000
    host.write("a.log", b"error\n" + tail)

    assert await host.ship("debug") == b"error\n"

    (cursor,) = host.positions.files.values()
    assert cursor.offset == 6 + len(tail)
    assert await host.ship("debug") == b""
    assert host.read == 0
    host.write("a.log", b"error again\n")
    assert await host.ship("debug") == b"error again\n"
    assert host.received() == b"error\nerror again\n"


async def test_a_file_of_which_every_line_is_left_out_is_passed_over_too(host: Host) -> None:
    host.write("a.log", b"debug\n" * 100)

    assert await host.ship("debug") == b""

    host.write("a.log", b"error\n")
    assert await host.ship("debug") == b"error\n"
    assert [str(block.section.span) for block in host.blocks] == ["id0:0-600", "id0:600-606"]


async def test_what_was_passed_over_stays_so_when_the_patterns_change(host: Host) -> None:
    host.write("a.log", b"error\ndebug\n")
    await host.ship("debug")
    host.write("a.log", b"debug 2\n")

    assert await host.ship() == b"debug 2\n"

    assert host.received() == b"error\ndebug 2\n"


async def test_a_tail_that_was_left_out_is_known_by_the_stream_alone(host: Host) -> None:
    host.write("a.log", b"error\ndebug\n")
    await host.ship("debug")
    host.positions = Positions().advance(origins(host.blocks), len(host.blocks))
    host.write("a.log", b"error 2\n")

    assert await host.ship("debug") == b"error 2\n"

    assert host.read == len(b"error 2\n")
    assert host.received() == b"error\nerror 2\n"


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        pytest.param("^x", b"a\nb\n", id="left out by its first piece"),
        pytest.param("y$", b"a\n" + b"x" * 1000 + b"y\nb\n", id="kept by its first piece"),
    ],
)
async def test_a_line_in_pieces_goes_or_stays_as_one(host: Host, exclude: str, left: bytes) -> None:
    host.write("a.log", b"a\n" + b"x" * 1000 + b"y\nb\n")

    await host.ship(exclude)

    assert host.received() == left


async def test_a_line_of_which_pieces_were_left_out_before_a_restart_goes_as_a_whole(
    host: Host,
) -> None:
    host.write("a.log", b"a\n" + b"x" * 1000)
    await host.ship("x")
    (cursor,) = host.positions.files.values()
    assert cursor.offset == 2

    host.write("a.log", b"end\nb\n")

    assert await host.ship("x") == b"b\n"
    assert host.received() == b"a\nb\n"


async def test_a_line_of_which_pieces_were_shipped_before_a_restart_is_shipped_whole(
    host: Host,
) -> None:
    host.write("a.log", b"a\n" + b"x" * 1000)
    await host.ship("y")

    host.write("a.log", b"y\nb\n")
    await host.ship("y", "x")

    assert host.received() == b"a\n" + b"x" * 1000 + b"y\nb\n"


def unfinished(host: Host) -> None:
    host.write("a.log", b"error\r\ndebug\r\nerr")


def finished(host: Host) -> None:
    host.write("a.log", b"error\r\ndebug\r\nerr\n")


@pytest.mark.parametrize(
    ("write", "left"), [(unfinished, b"error\r\n"), (finished, b"error\r\nerr\n")]
)
async def test_an_unfinished_last_line_is_held_before_it_is_judged(
    host: Host, write: Callable[[Host], None], left: bytes
) -> None:
    write(host)

    assert await host.ship("debug") == left
