"""Deleted while open: read to the end and let go, or let go when that takes too long, and told by name."""

import asyncio
import os
from pathlib import Path

from broker.wire.positions import Positions
from shipper.publish.rounds import Round
from shipper.shipping import LoopOptions, Shipping
from shipper.status.report import AgentMeter
from shipper.tail.notices import NoticeKind
from tests.descriptors import held_by
from tests.shipper.host import SECOND
from tests.shipper.shipped import AGENT
from tests.shipper.tail.conftest import MakeHost


def held(path: Path) -> bool:
    return any(str(path) in one for one in held_by(os.getpid()))


async def taken_up(path: Path) -> None:
    for _ in range(900):
        if held(path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} is not held")


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


async def test_a_deleted_file_is_let_go_in_time_although_the_broker_is_away(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host(hold=3600.0)
    host.write("app.log", b"1\n")
    meter = AgentMeter(host.clock)
    asked = asyncio.Event()

    async def never(_: Round) -> int:
        asked.set()
        await asyncio.Event().wait()
        return 0

    options = LoopOptions(1 << 20, "none", once=False, scan_every=0.02)
    shipping = Shipping(host.follower, AGENT, never, Positions(), options, asyncio.Event(), meter)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            await shipping.run(group)

    running = asyncio.create_task(run())
    async with asyncio.timeout(30):
        await asked.wait()
        await taken_up(tmp_path / "app.log")
        host.write("app.log", b"2\n")
        (tmp_path / "app.log").unlink()
        while held(tmp_path / "app.log") or not meter.lost["deleted"]:
            host.later += 600 * SECOND
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert meter.lost["deleted"] == 2
