"""Files that are truncated, copied or written anew: every line once, and what is lost is said."""

import os

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import SECOND, Host


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


async def test_a_file_is_not_called_lost_that_was_copied_before_anything_was_read_of_it(
    host: Host,
) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.copy_truncate("app.log", "app.log.1")
    host.write("app.log", b"2\n")
    await host.look()
    host.move("app.log.1", "app.log.2")
    host.copy_truncate("app.log", "app.log.1")
    host.write("app.log", b"3\n")

    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n3\n"
    assert [notice.lost for notice in host.said(NoticeKind.TRUNCATED)] == [0, 0]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "down"])
async def test_the_unread_rest_of_a_truncated_file_is_taken_from_its_copy(
    host: Host, restarted: bool
) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.copy_truncate("app.log", "app.log.1")
    host.write("app.log", b"3\n4\n5\n")
    if restarted:
        await host.restart()

    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n3\n4\n5\n"
    assert [str(b.section.span) for b in host.blocks][:2] == ["id0:0-2", "id0:2-4"]


async def test_lines_read_between_copy_and_truncation_are_not_repeated(host: Host) -> None:
    host.write("app.log", b"1\n")
    (host.folder / "app.log.1").write_bytes(b"1\n")
    host.write("app.log", b"2\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"3\n")

    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


async def test_a_file_that_is_copied_and_removed_is_shipped_once(host: Host) -> None:
    line = b"x" * 80 + b"\n"
    host.write("app.log", line)
    await host.ship()
    host.write("app.log", b"2\n")
    (host.folder / "app.log.1").write_bytes(line + b"2\n")
    (host.folder / "app.log").unlink()
    host.write("app.log", b"3\n")

    await host.ship()
    await host.ship()
    host.later = 6 * SECOND
    await host.ship()
    await host.ship()

    assert host.shipped == line + b"2\n3\n"


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
