"""A follower goes back to what is stored: every line comes again from there, also of files that nobody can open any more."""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from broker.wire.positions import Positions
from shipper.tail.notices import NoticeKind
from tests.descriptors import held_by
from tests.shipper.host import SECOND, Host
from tests.shipper.shipped import origins
from tests.shipper.tail.conftest import MakeHost


def stored(host: Host, blocks: int) -> Positions:
    """Return the positions of a host of which so many blocks are stored."""
    begun = host.positions.found(host.follower.starts(set()))
    return begun.advance(origins(host.blocks[:blocks]), blocks)


async def rewind(host: Host, blocks: int) -> bool:
    """Go back to the end of so many blocks, and forget the others as nobody has them."""
    done = await host.follower.rewind(stored(host, blocks).files)
    del host.blocks[blocks:]
    return done


async def test_a_deleted_file_is_held_until_it_is_stored(host: Host) -> None:
    host.follower.stored = lambda _: 0
    host.write("app.log", b"one\n")
    await host.ship()
    (host.folder / "app.log").unlink()
    for _ in range(3):
        host.later += 6 * SECOND
        await host.ship()

    assert host.said(NoticeKind.GONE) == []
    assert await rewind(host, 0)
    assert await host.ship() == b"one\n"
    host.follower.stored = lambda _: 4
    for _ in range(2):
        host.later += 6 * SECOND
        await host.ship()
    assert [notice.lost for notice in host.said(NoticeKind.GONE)] == [0]


async def test_a_file_of_another_agent_cannot_be_gone_back_to(host: Host) -> None:
    host.write("app.log", b"one\n")
    await host.ship()
    other = replace(stored(host, 1).files["id0"], file="other")

    assert not await host.follower.rewind({"other": other})


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
