"""Deleted while open: read to the end and let go, in time or told by name; and read again from what is stored."""

import asyncio
import os
import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from shipper.tail.scan import NoticeKind
from tests.descriptors import held_by
from tests.shipper.host import SECOND, Host
from tests.shipper.tail.conftest import MakeHost


def held(path: Path) -> bool:
    return any(str(path) in one for one in held_by(os.getpid()))


async def test_a_deleted_file_is_read_to_its_end_and_then_closed(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host()
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    (tmp_path / "app.log").unlink()

    assert await host.ship() == b"2\n"
    assert held(tmp_path / "app.log")
    for _ in range(3):  # a word of its last write that is heard late costs another look
        host.later += 6 * SECOND
        await host.ship()

    assert not held(tmp_path / "app.log")
    assert [notice.lost for notice in host.said(NoticeKind.GONE)] == [0]


async def test_a_deleted_file_that_cannot_be_read_is_let_go_in_time_and_its_loss_is_told(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host(hold=3600.0)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"22\n" * 1000)
    (tmp_path / "app.log").unlink()
    await host.look()

    host.later += 3590 * SECOND
    await host.look()
    assert held(tmp_path / "app.log")
    host.later += 20 * SECOND
    await host.look()

    (notice,) = host.said(NoticeKind.GONE)
    assert not held(tmp_path / "app.log")
    assert (notice.path, notice.lost) == (str(tmp_path / "app.log"), 3000)
    assert "bytes 2 to 3002 were not read" in notice.text
    assert await host.gather() == b""


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
