"""Files that are truncated, copied or written anew: every line once, and what is lost is said."""

import os

from shipper.tail.notices import NoticeKind
from tests.shipper.host import Host


async def test_bytes_that_were_seen_and_lost_to_a_truncation_are_counted(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"unread\n")
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    await host.ship()

    assert [notice.lost for notice in host.said(NoticeKind.TRUNCATED)] == [7]


async def test_a_file_that_begins_as_before_and_goes_on_otherwise_is_read_anew(host: Host) -> None:
    banner = (b"x" * 99 + b"\n") * 20
    host.write("app.log", banner + b"1\n" * 40)
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", banner + b"2\n" * 60)
    await host.restart()

    await host.ship()

    assert host.shipped == banner + b"1\n" * 40 + banner + b"2\n" * 60
