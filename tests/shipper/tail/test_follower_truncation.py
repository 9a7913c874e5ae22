"""Files that are truncated, copied or written anew: every line once, and what is lost is said."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import SECOND, Host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    yield host
    await host.follower.close()


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


async def test_a_copy_is_not_shipped_before_the_truncation_nor_after_it(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    (host.folder / "app.log.1").write_bytes(b"1\n2\n")
    await host.ship()
    await host.ship()
    assert host.shipped == b"1\n2\n"

    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"3\n")
    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


async def test_a_copy_in_the_making_is_not_shipped(host: Host) -> None:
    host.write("app.log", b"1\n2\n3\n")
    await host.ship()
    for part in (b"", b"1\n", b"1\n2\n"):
        (host.folder / "app.log.1").write_bytes(part)
        await host.ship()

    assert host.shipped == b"1\n2\n3\n"


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


async def test_a_file_recreated_on_the_same_inode_is_another_file(host: Host) -> None:
    host.write("app.log", b"1\n2\n")
    await host.ship()
    await host.follower.close()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"another\nfile\n")
    await host.restart()

    await host.ship()

    assert host.shipped == b"1\n2\nanother\nfile\n"


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


async def test_the_copy_of_a_file_of_which_nothing_was_read_comes_before_what_is_written_next(
    host: Host,
) -> None:
    host.write("app.log", b"")
    await host.look()
    host.write("app.log", b"a" * 99 + b"\n")
    (host.folder / "app.log.1").write_bytes((host.folder / "app.log").read_bytes())
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"b" * 199 + b"\n")

    shipped = await host.gather() + await host.ship()

    assert shipped == b"a" * 99 + b"\n" + b"b" * 199 + b"\n"


async def test_a_copy_that_is_written_over_is_the_copy_of_what_it_holds_now(host: Host) -> None:
    first, second = b"a" * 99 + b"\n", b"b" * 79 + b"\n"
    host.write("app.log", first)
    await host.ship()
    (host.folder / "app.log.1").write_bytes(first)
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    await host.look()
    host.write("app.log", second)
    (host.folder / "app.log.1").write_bytes(second)
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"three\n")

    assert await host.ship() == second + b"three\n"


@pytest.mark.parametrize("how", ["renamed", "copied"])
async def test_a_backlog_that_was_found_and_not_shipped_survives_a_crash_and_a_rotation(
    host: Host, how: str
) -> None:
    host.write("app.log", b"a" * 99 + b"\n")
    await host.look()
    if how == "renamed":
        host.move("app.log", "app.log.1")
    else:
        host.copy_truncate("app.log", "app.log.1")
    host.write("app.log", b"b" * 99 + b"\n")
    os.utime(host.folder / "app.log.1", ns=(0, 0))

    await host.restart_with_saved_positions()

    assert await host.ship() == b"a" * 99 + b"\n" + b"b" * 99 + b"\n"


async def test_siblings_that_were_found_and_not_shipped_survive_a_crash_once_their_elders_are_gone(
    host: Host,
) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.2")
    host.write("app.log", b"3\n")
    await host.look()
    (host.folder / "app.log.1").unlink()
    os.utime(host.folder / "app.log.2", ns=(0, 0))
    host.write("app.log", b"4\n")
    await host.restart_with_saved_positions()

    assert await host.ship() == b"2\n3\n4\n"


async def test_what_a_deleted_file_was_written_anew_with_is_read_while_it_is_open(
    host: Host,
) -> None:
    host.write("app.log", b"one\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"another\n")
    assert await host.gather() == b""
    (host.folder / "app.log").unlink()

    assert await host.ship() == b"another\n"


async def test_the_beginning_of_a_file_found_empty_is_known_before_it_is_truncated(
    host: Host,
) -> None:
    host.write("app.log", b"open from now on\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    await host.look()
    host.write("app.log", b"a" * 99 + b"\n")
    await host.look()
    host.copy_truncate("app.log", "app.log.1")
    host.write("app.log", b"b" * 199 + b"\n")

    shipped = await host.gather() + await host.ship()

    assert shipped == b"a" * 99 + b"\n" + b"b" * 199 + b"\n"
