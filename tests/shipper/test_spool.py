"""Standard input goes through files to the broker: every byte once and in order, whenever the agent is stopped."""

import asyncio
import itertools
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker.app.files import make_folder
from broker.wire.positions import Positions
from shipper.publish.rounds import Round
from shipper.shipping import LoopOptions, Shipping
from shipper.spool import Spool
from shipper.status.meter import AgentMeter
from shipper.tail.follower import Follower
from shipper.tail.paths import Selection

ROOT = Path(__file__).parents[2]


class Pipe:
    """A pipe whose writer is the test; both ends are closed at its end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._writer, data) :]

    def fill(self, most: int, patience: float = 1.0) -> int:
        """Write until nobody has read for so many seconds; return how many bytes that were, `most` at most."""
        os.set_blocking(self._writer, False)
        sent, until = 0, time.monotonic() + patience
        while sent < most and time.monotonic() < until:
            try:
                sent += os.write(self._writer, (b"x" * 63 + b"\n") * 16)
                until = time.monotonic() + patience
            except BlockingIOError:
                time.sleep(0.01)
        os.set_blocking(self._writer, True)
        return sent

    def end(self) -> None:
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def close(self) -> None:
        self.end()
        os.close(self.reader)


class Agent:
    """An agent that may be stopped and started over one folder, and a broker that takes its rounds while it is `there`."""

    def __init__(self, folder: Path, segment_size: int = 4000, most: int = 1 << 20) -> None:
        self.folder = folder
        self._segment_size = segment_size
        self.there = asyncio.Event()
        self.there.set()
        self.rounds: list[Round] = []
        self._saved = Positions()
        self._most = most
        self._options = LoopOptions(1 << 20, "none", False, scan_after=0.01, interval=0.01)
        self._ids = (f"f{number}" for number in itertools.count())

    @property
    def lines(self) -> bytes:
        return b"".join(round_.payload for round_ in self.rounds)

    @property
    def segments(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    @property
    def positions(self) -> Positions:
        """What the next run finds out from the snapshot and the stream."""
        return self._saved.advance([round_.origin for round_ in self.rounds], len(self.rounds))

    @asynccontextmanager
    async def spool(self, descriptor: int) -> AsyncIterator[Spool]:
        folder = make_folder(self.folder, 0o700)
        spool = Spool(
            folder,
            lambda: next(self._ids),
            time.time_ns,
            descriptor=descriptor,
            segment_size=self._segment_size,
            most=self._most,
        )
        try:
            yield spool
        finally:
            await spool.close()

    async def run(self, descriptor: int) -> None:
        """Ship until the end of the input."""
        stopping = asyncio.Event()
        known = self.positions
        follower = Follower(
            Selection(()), known.files.values(), new_id=lambda: "?", clock=time.time_ns
        )
        meter = AgentMeter(time.time_ns)
        shipping = Shipping(follower, "1-a", self._publish, known, self._options, stopping, meter)
        async with self.spool(descriptor) as spool:
            try:
                async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                    group.create_task(shipping.run(group, self._save))
                    await spool.run(follower, shipping)
                    stopping.set()
                    follower.wake.set()
            finally:
                await follower.close()
            assert spool.is_done

    async def run_for(self, seconds: float, descriptor: int) -> bool:
        """Ship until the end or for so long; return whether the end was reached."""
        running = asyncio.create_task(self.run(descriptor))
        await asyncio.wait({running}, timeout=seconds)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return not running.cancelled()

    async def _publish(self, round_: Round) -> int:
        await self.there.wait()
        self.rounds.append(round_)
        return len(self.rounds)

    async def _save(self, positions: Positions) -> None:
        self._saved = positions


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path / "state")


@pytest.mark.parametrize(
    ("written", "shipped"),
    [
        pytest.param(b"", b"", id="nothing"),
        pytest.param(b"one\n", b"one\n", id="a line"),
        pytest.param(b"one\ntwo", b"one\ntwo\n", id="an unfinished last line gets its newline"),
        pytest.param(b"\n\n\n", b"\n\n\n", id="empty lines"),
        pytest.param(b"\0\0\xff\r\n\0\xfe", b"\0\0\xff\r\n\0\xfe\n", id="any bytes"),
        pytest.param(bytes(5000) + b"\n", bytes(5000) + b"\n", id="NULs as after a truncation"),
        pytest.param(b"same\n" * 9000, b"same\n" * 9000, id="segments that are all alike"),
        pytest.param(b"x" * 30_000 + b"\ny\n", b"x" * 30_000 + b"\ny\n", id="a very long line"),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "file"])
async def test_what_comes_until_the_end_is_shipped_and_nothing_stays(
    agent: Agent, pipe: Pipe, tmp_path: Path, written: bytes, shipped: bytes, kind: str
) -> None:
    pipe.write(written)
    pipe.end()
    (tmp_path / "redirected").write_bytes(written)
    with (tmp_path / "redirected").open("rb") as file:
        await agent.run(pipe.reader if kind == "pipe" else file.fileno())

    assert agent.lines == shipped
    assert agent.segments == []


@pytest.mark.parametrize("seed", range(6))
async def test_whenever_it_is_stopped_and_started_every_byte_is_shipped_once_and_in_order(
    agent: Agent, pipe: Pipe, seed: int
) -> None:
    chance = random.Random(seed)
    pieces = [b"a line\n", b"same\n" * 50, b"x" * 700, b"\xff\0\n", b"y" * 9000 + b"\n"]
    written = b"".join(chance.choices(pieces, k=300)) + b"\n"

    def write() -> None:
        for start in range(0, len(written), 10_000):
            # a stop ends an input, and finishes its last line
            pipe.write(written[start : start + 10_000])
            time.sleep(chance.choice([0, 0.002]))
        pipe.end()

    writer = threading.Thread(target=write)
    writer.start()
    is_over = False
    while not is_over:
        agent.there.set() if chance.random() < 0.7 else agent.there.clear()
        is_over = await agent.run_for(chance.random(), pipe.reader)
    writer.join(10)

    assert _without_stops(agent.lines, written)
    assert agent.segments == []


def _without_stops(shipped: bytes, written: bytes) -> bool:
    """Whether these are the bytes that were written, but for newlines that stand where a run was stopped."""
    if shipped == written:
        return True
    at = 0
    for number, line in enumerate(shipped.splitlines(keepends=True)):
        if written.startswith(line, at):
            at += len(line)
        elif written.startswith(line[:-1], at):
            at += len(line) - 1
        else:
            raise AssertionError(f"line {number} {line[:50]!r} is not at {at}")
    return at == len(written)


async def test_the_writer_waits_while_too_much_is_not_acknowledged(
    tmp_path: Path, pipe: Pipe
) -> None:
    agent = Agent(tmp_path / "state", segment_size=50_000, most=200_000)
    agent.there.clear()
    running = asyncio.create_task(agent.run(pipe.reader))

    sent = await asyncio.to_thread(pipe.fill, 1_000_000)
    assert 200_000 <= sent < 200_000 + 3 * 65536
    held = sum((agent.folder / name).stat().st_size for name in agent.segments)
    assert 200_000 <= held < 200_000 + 65536

    agent.there.set()
    sent += await asyncio.to_thread(pipe.fill, 1_000_000)
    pipe.end()
    await running

    assert sent > 1_000_000
    assert agent.lines == (b"x" * 63 + b"\n") * (sent // 64)


async def test_what_another_shipper_holds_is_left_to_it(agent: Agent, pipe: Pipe) -> None:
    agent.folder.mkdir()
    (agent.folder / "notes").write_bytes(b"not ours\n")
    (agent.folder / "stdin-00000007-f7").write_bytes(b"its line\n")
    async with agent.spool(pipe.reader):
        pipe.write(b"one\n")
        pipe.end()
        await agent.run(pipe.reader)

    assert agent.lines == b"one\n"
    assert agent.segments == ["notes", "stdin-00000007-f7"]

    await agent.run(pipe.reader)

    assert agent.lines == b"one\nits line\n"
    assert agent.segments == ["notes"]
