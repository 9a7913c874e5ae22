"""Another selection for a running follower: what it still shows goes on, what it does not is let go and not lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import Host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path, "a.log", "b.log")
    host.write("a.log", b"a1\n")
    host.write("b.log", b"b1\n")
    await host.ship()
    yield host
    await host.follower.close()


async def test_what_is_named_no_longer_is_let_go_and_not_called_lost(host: Host) -> None:
    host.write("b.log", b"b2\n")

    await host.retarget("a.log")

    assert [state.path for state in host.follower.states()] == [str(host.folder / "a.log")]
    assert host.follower.open_files == 1
    assert await host.ship() == b""
    assert host.said(NoticeKind.GONE) == []


async def test_only_what_is_newly_named_begins_at_its_end(host: Host) -> None:
    host.write("c.log", b"old\n")
    await host.retarget("*.log", from_end=True)
    await host.ship()
    host.write("c.log", b"new\n")
    host.write("d.log", b"later\n")

    assert sorted((await host.ship()).split()) == [b"later", b"new"]
