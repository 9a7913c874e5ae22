"""A follower goes back to what is stored: every line comes again from there, also of files that nobody can open any more."""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tests.descriptors import held_by
from tests.shipper.host import Host
from tests.shipper.tail.conftest import MakeHost


async def test_a_file_of_another_agent_cannot_be_gone_back_to(host: Host) -> None:
    host.write("app.log", b"one\n")
    await host.ship()
    (cursor,) = host.cursors()

    assert not await host.follower.rewind({"other": replace(cursor, file="other")})


async def test_files_stay_open_and_a_reading_that_was_broken_off_does_no_harm(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", block_size=1000)
    expected = b"".join(b"%d %s\n" % (n, b"x" * 200) for n in range(20_000))
    host.write("app.log", expected)
    await host.look()
    (tmp_path / "app.log").unlink()
    for _ in range(20):
        reading = asyncio.create_task(host.follower.gather(1 << 22))
        await asyncio.sleep(random.uniform(0, 0.01))
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        assert await host.follower.rewind(host.positions.files)

    assert sum("app.log" in one for one in held_by(os.getpid())) == 1
    assert await host.ship() == expected
