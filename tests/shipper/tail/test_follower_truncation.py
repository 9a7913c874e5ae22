"""Files that are truncated, copied or written anew: every line once, and what is lost is said."""

import os

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import Host


@pytest.mark.parametrize("anew", [b"3\n", b"3\n4\n5\n"], ids=["shorter", "past the old offset"])
async def test_a_truncated_file_is_read_anew_under_a_new_id(host: Host, anew: bytes) -> None:
    host.write("app.log", b"1\n2\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", anew)

    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n" + anew
    spans = [str(block.section.span) for block in host.blocks]
    assert spans == ["id0:0-4", f"id1:0-{len(anew)}"]
    assert host.said(NoticeKind.TRUNCATED)


async def test_bytes_that_were_seen_and_lost_to_a_truncation_are_counted(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"unread\n")
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    await host.ship()

    assert [notice.lost for notice in host.said(NoticeKind.TRUNCATED)] == [7]


async def test_a_truncation_is_noticed_and_said_when_nothing_had_been_read_yet(host: Host) -> None:
    host.write("app.log", b"")
    await host.look()
    host.write("app.log", b"a" * 99 + b"\n")
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"b" * 59 + b"\n")

    assert await host.gather() == b""
    assert await host.ship() == b"b" * 59 + b"\n"
    assert [notice.lost for notice in host.said(NoticeKind.TRUNCATED)] == [100]


async def test_a_file_that_begins_as_before_and_goes_on_otherwise_is_read_anew(host: Host) -> None:
    banner = (b"x" * 99 + b"\n") * 20
    host.write("app.log", banner + b"1\n" * 40)
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", banner + b"2\n" * 60)
    await host.restart()

    await host.ship()

    assert host.shipped == banner + b"1\n" * 40 + banner + b"2\n" * 60
