"""Files that are renamed, deleted or moved away while they are followed, or while nobody looks."""

import gzip
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


async def test_a_renamed_file_is_read_to_its_end_before_its_successor(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"
    assert [notice.text for notice in host.said(NoticeKind.ROTATED)] == [
        f"is now {host.folder}/app.log.1"
    ]


async def test_a_writer_may_go_on_writing_to_the_renamed_file(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.move("app.log", "app.log.1")
    await host.ship()
    host.write("app.log.1", b"2\n")
    host.write("app.log", b"3\n")

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "down"])
async def test_files_renamed_twice_between_two_looks_are_all_shipped_oldest_first(
    host: Host, restarted: bool
) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")
    host.move("app.log.1", "app.log.2")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"4\n")
    if restarted:
        await host.restart()

    await host.ship()

    assert host.shipped == b"1\n2\n3\n4\n"


@pytest.mark.parametrize("name", ["app.log-20260101", "app-20260101.log", "app.log.old"])
async def test_dated_names_are_followed_as_well(host: Host, name: str) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", name)
    host.write("app.log", b"3\n")
    await host.restart()

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


async def test_an_empty_file_is_known_again_though_it_was_written_and_renamed_while_nobody_looked(
    host: Host,
) -> None:
    host.write("app.log", b"")
    await host.ship()
    host.write("app.log", b"1\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"")

    await host.restart_with_saved_positions()

    assert await host.ship() == b"1\n"


@pytest.mark.parametrize("name", ["other.log", "app.log.1.gz"])
async def test_an_empty_file_is_not_taken_for_another_one_that_got_its_inode(
    tmp_path: Path, name: str
) -> None:
    host = Host(tmp_path, "*.log")
    host.write("app.log", b"one line\n" * 9)
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"")
    await host.ship()
    await host.follower.close()
    data = gzip.compress((tmp_path / "app.log.1").read_bytes())
    (tmp_path / "app.log.1").unlink()
    (tmp_path / "app.log").write_bytes(data if name.endswith(".gz") else b"other\n")
    host.move("app.log", name)  # as good as a file that was made when the empty one was gone

    await host.restart_with_saved_positions()
    shipped = await host.ship()

    labels = [block.section.path for block in host.blocks[1:]]
    expected = [] if name.endswith(".gz") else [str(tmp_path / name)]
    assert labels == expected
    assert shipped == b"other\n" * len(expected)
    await host.follower.close()


async def test_old_siblings_are_not_shipped_on_a_first_start(host: Host) -> None:
    host.write("app.log.1", b"old\n")
    host.write("app.log", b"new\n")

    assert await host.ship() == b"new\n"
    assert await host.ship() == b""


async def test_siblings_that_a_glob_shows_are_shipped_oldest_first(tmp_path: Path) -> None:
    host = Host(tmp_path, "app.log*")
    for number, name in enumerate(["app.log.2", "app.log.1", "app.log"]):
        host.write(name, b"%d\n" % number)
        os.utime(tmp_path / name, ns=(number * SECOND, number * SECOND))
    host.write("app.log.3.lz4", b"\x04\x22")

    assert await host.ship() == b"0\n1\n2\n"
    assert [notice.path for notice in host.said(NoticeKind.REFUSED)] == [
        str(tmp_path / "app.log.3.lz4")
    ]
    await host.follower.close()


async def test_a_successor_waits_for_the_last_line_of_the_renamed_file(host: Host) -> None:
    host.write("app.log", b"1\nunfinis")
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"2\n")
    assert await host.ship() == b""

    host.write("app.log.1", b"hed\n")

    assert await host.ship() == b"unfinished\n2\n"


async def test_a_deleted_file_is_read_to_its_end_and_let_go(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\nlast")
    (host.folder / "app.log").unlink()
    host.write("app.log", b"3\n")
    assert await host.ship() == b"2\n"
    host.later = 6 * SECOND
    assert await host.gather() == b"last\n3\n"
    host.later = 12 * SECOND

    await host.ship()

    assert [(n.lost, n.text) for n in host.said(NoticeKind.GONE)] == [
        (0, "is gone, read to its end")
    ]
    assert len(host.follower.states()) == 1


async def test_a_file_moved_out_of_sight_is_read_to_its_end(host: Host) -> None:
    (host.folder / "archive").mkdir()
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", "archive/x")
    host.write("app.log", b"3\n")

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


async def test_a_file_that_came_and_was_rotated_between_two_looks_is_read_where_nothing_was_before(
    host: Host,
) -> None:
    host.write("app.log", b"")
    await host.look()
    (host.folder / "app.log").unlink()
    await host.look()
    host.write("app.log", b"one\n")
    host.move("app.log", "app.log.1")

    assert await host.ship() == b"one\n"


async def test_what_was_written_to_a_file_just_before_it_was_deleted_is_read_after_a_restart(
    host: Host,
) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    await host.restart()
    await host.look()

    host.write("app.log", b"2\n")
    (host.folder / "app.log").unlink()

    assert await host.ship() == b"2\n"


async def test_a_deleted_file_that_was_written_last_comes_after_its_older_copy(host: Host) -> None:
    host.write("app.log", b"")
    await host.look()
    host.write("app.log", b"1\n")
    host.copy_truncate("app.log", "app.log.1")
    os.utime(host.folder / "app.log.1", ns=(host.clock(), host.clock() + SECOND))
    host.write("app.log", b"2\n")
    os.utime(host.folder / "app.log", ns=(host.clock(), host.clock() + 2 * SECOND))
    (host.folder / "app.log").unlink()

    assert await host.ship() == b"1\n2\n"


async def test_of_two_names_a_file_keeps_the_one_that_it_was_followed_at_unless_the_other_is_live(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "*.log")
    host.write("b.log", b"1\n")
    await host.look()
    (tmp_path / "a.log").hardlink_to(tmp_path / "b.log")
    await host.look()
    assert [state.path for state in host.follower.states()] == [str(tmp_path / "b.log")]

    host.move("b.log", "b.log.1")
    (tmp_path / "a.log").unlink()
    await host.look()
    (tmp_path / "b.log").hardlink_to(tmp_path / "b.log.1")
    await host.look()

    assert [state.path for state in host.follower.states()] == [str(tmp_path / "b.log")]
    assert await host.ship() == b"1\n"
    await host.follower.close()
