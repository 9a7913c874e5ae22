"""inotify reports every change; `test_agent_program.py` shows that polling misses none either."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.shipper.sources.files.conftest import MakeHost

NEVER = 3600.0


async def test_every_write_is_reported_whatever_comes_between_them(make_host: MakeHost) -> None:
    host, chance = make_host("*.log", poll_every=NEVER), random.Random(7)
    count = dict.fromkeys(("a", "b", "c"), 0)
    pauses = (0.0, 0.001, 0.03, 0.2, 0.95, 1.0, 1.02, 1.05, 1.08)

    async def write() -> None:
        for _ in range(12):
            for _ in range(chance.randrange(1, 5)):
                name = chance.choice(list(count))
                host.write(f"{name}.log", b"%b%04d\n" % (name.encode(), count[name]))
                count[name] += 1
            await asyncio.sleep(chance.choice(pauses))

    writing = asyncio.create_task(write())
    async with asyncio.timeout(60):
        while not writing.done() or len(host.shipped.splitlines()) < sum(count.values()):
            await host.step(longest=0.01)

    for name, number in count.items():
        lines = [line for line in host.shipped.splitlines() if line.startswith(name.encode())]
        assert lines == [b"%b%04d" % (name.encode(), n) for n in range(number)]


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_a_write_to_what_a_link_leads_to_is_reported(
    tmp_path: Path, make_host: MakeHost, what: str
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    if what == "file":
        here.mkdir()
        (here / "a.log").symlink_to(there / "real")
    else:
        here.symlink_to(there)
    real = there / ("real" if what == "file" else "a.log")
    host = make_host("here/*.log", poll_every=NEVER)
    for number in range(3):
        with real.open("ab") as file:
            file.write(b"%d\n" % number)
        await host.until_shipped(b"%d\n" % number, longest=0.1)
        async with asyncio.timeout(40):
            while host.follower.poll_in < 60 or host.follower.is_scan_due:  # until nothing grows
                await host.step(longest=0.1)
