"""Changes are heard by inotify, and none is missed in between; that polling misses none shows `test_polling_program.py`."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from shipper.tail.follower import Follower
from shipper.tail.paths import Selection

SOON = 40.0  # seconds, on a machine that is busy with other things
NEVER = 3600.0


class Agent:
    """A follower and the loop around it, as the program has it, without a broker."""

    def __init__(self, folder: Path) -> None:
        numbers = itertools.count()
        self.folder = folder
        self.got = b""
        self.follower = Follower(
            Selection.of([str(folder / "*.log")]),
            [],
            new_id=lambda: f"id{next(numbers)}",
            clock=time.time_ns,
            poll_every=NEVER,
        )

    async def step(self, longest: float) -> None:
        """Take what there is and wait for more, as the loop of the program does, but never look without a reason."""
        if self.follower.look_due:
            await self.follower.look()
        blocks = await self.follower.gather(1 << 22)
        self.got += b"".join(block.lines for block in blocks)
        if not blocks and not self.follower.look_due:
            await self.follower.wait(min(longest, self.follower.patience))

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(SOON):
            while not done():
                await self.step(longest=0.1)

    async def until_got(self, lines: bytes) -> None:
        await self.until(lambda: self.got.endswith(lines))

    async def until_quiet(self) -> None:
        """Go on until nothing grows."""
        await self.until(lambda: self.follower.patience > SOON and not self.follower.look_due)

    def write(self, name: str, data: bytes) -> None:
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def lines_of(self, name: str) -> list[bytes]:
        return [line for line in self.got.splitlines() if line.startswith(name.encode())]


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    await agent.follower.close()


async def test_every_write_is_heard_whatever_comes_between_them(agent: Agent) -> None:
    chance = random.Random(7)
    count = dict.fromkeys(("a", "b", "c"), 0)
    pauses = (0.0, 0.001, 0.03, 0.2, 0.95, 1.0, 1.02, 1.05, 1.08)

    async def write() -> None:
        for _ in range(12):
            for _ in range(chance.randrange(1, 5)):
                name = chance.choice(list(count))
                agent.write(f"{name}.log", b"%b%04d\n" % (name.encode(), count[name]))
                count[name] += 1
            await asyncio.sleep(chance.choice(pauses))

    writing = asyncio.create_task(write())
    while not writing.done():
        await agent.step(longest=0.01)
    await agent.until(lambda: len(agent.got.splitlines()) == sum(count.values()))

    for name, number in count.items():
        assert agent.lines_of(name) == [b"%b%04d" % (name.encode(), n) for n in range(number)]


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_write_to_what_a_link_leads_to_is_heard(tmp_path: Path, what: str) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    if what == "file":
        here.mkdir()
        (here / "a.log").symlink_to(there / "real")
    else:
        here.symlink_to(there)
    real = there / ("real" if what == "file" else "a.log")
    agent = Agent(here)
    for number in range(3):
        with real.open("ab") as file:
            file.write(b"%d\n" % number)
        await agent.until_got(b"%d\n" % number)
        await agent.until_quiet()
    await agent.follower.close()
