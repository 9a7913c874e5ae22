"""Following files: what is read, from where on, and what is said."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shipper.cursor import after
from shipper.notice import NoticeKind
from tests.shipper.following import SECOND, Host


def descriptors() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    yield host
    await host.follower.close()


async def test_lines_of_a_new_file_are_read_from_its_beginning(host: Host) -> None:
    host.write("app.log", b"one\ntwo\n")

    assert await host.ship() == b"one\ntwo\n"


async def test_a_block_says_where_its_lines_came_from(host: Host) -> None:
    host.write("app.log", b"one\n")
    await host.ship()
    host.write("app.log", b"two\nthree\n")
    await host.ship()

    origin = host.blocks[-1].origin

    assert origin.file == str(host.folder / "app.log")
    assert origin.span is not None
    assert (origin.span.start, origin.span.end, origin.lines) == (4, 14, 2)
    assert origin.identity is not None
    assert origin.identity.inode == (host.folder / "app.log").stat().st_ino
    assert after(origin) == host.follower.cursors()[0]


async def test_nothing_new_gives_nothing(host: Host) -> None:
    host.write("app.log", b"one\n")
    await host.ship()

    assert await host.ship() == b""


async def test_an_unfinished_line_is_held_until_it_is_finished(host: Host) -> None:
    host.write("app.log", b"one\ntw")
    assert await host.ship() == b"one\n"
    assert host.follower.states()[0].held == 2
    host.later = 60 * SECOND
    assert await host.ship() == b""

    host.write("app.log", b"o\n")

    assert await host.ship() == b"two\n"


async def test_raw_bytes_pass_unchanged(host: Host) -> None:
    raw = b"\xef\xbb\xbfbom\r\n\n\n\0\0nul\n\xff\xfe\xc3(\n\r\n"
    host.write("app.log", raw)

    assert await host.ship() == raw


async def test_long_lines_come_whole_or_in_pieces(tmp_path: Path) -> None:
    host = Host(tmp_path, block_size=100, max_line=300)
    raw = b"a\n" + b"b" * 250 + b"\n" + b"c" * 1000 + b"\nd\n"
    host.write("app.log", raw)

    await host.ship()

    assert host.shipped == raw
    assert max(len(block.payload) for block in host.blocks) == 300
    assert b"b" * 250 + b"\n" in [block.payload for block in host.blocks]
    await host.follower.close()


async def test_a_gathering_keeps_to_its_budget_and_is_fair(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log", block_size=1000)
    host.write("flood.log", b"x" * 99 + b"\n")
    for _ in range(10):
        host.write("flood.log", (b"x" * 99 + b"\n") * 1000)
    host.write("quiet.log", b"quiet\n")
    await host.look()

    blocks = await host.follower.gather(10_000)

    assert sum(len(block.payload) for block in blocks) <= 12_000
    assert b"quiet\n" in [block.payload for block in blocks]
    await host.follower.close()


async def test_a_restart_goes_on_exactly_where_the_cursors_say(host: Host) -> None:
    host.write("app.log", b"one\ntwo\n")
    await host.ship()
    await host.restart()
    host.write("app.log", b"three\n")

    assert await host.ship() == b"three\n"
    assert len({block.origin.span.file for block in host.blocks if block.origin.span}) == 1


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
    host.write("app.log.3.gz", b"\x1f\x8b")

    assert await host.ship() == b"0\n1\n2\n"
    assert [notice.path for notice in host.said(NoticeKind.REFUSED)] == [
        str(tmp_path / "app.log.3.gz")
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


async def test_an_unfinished_line_of_a_renamed_file_is_shipped_after_the_grace(host: Host) -> None:
    host.write("app.log", b"1\nunfinished")
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"2\n")
    await host.ship()

    host.later = 6 * SECOND

    assert await host.gather() == b"unfinished\n2\n"
    span = host.blocks[-2].origin.span
    assert span is not None
    assert (span.start, span.end) == (2, 12)


async def test_a_truncated_file_is_read_anew_under_a_new_id(host: Host) -> None:
    host.write("app.log", b"1\n2\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"3\n")

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"
    spans = [str(block.origin.span) for block in host.blocks]
    assert spans == ["id0:0-4", "id1:0-2"]
    assert host.said(NoticeKind.TRUNCATED)


async def test_a_file_truncated_and_grown_past_the_old_offset_is_read_anew(host: Host) -> None:
    host.write("app.log", b"1\n2\n")
    await host.ship()
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", b"3\n4\n5\n")

    await host.ship()
    await host.ship()

    assert host.shipped == b"1\n2\n3\n4\n5\n"


async def test_bytes_that_were_seen_and_lost_to_a_truncation_are_counted(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"unread\n")
    await host.look()
    os.truncate(host.folder / "app.log", 0)
    await host.ship()

    assert [notice.lost for notice in host.said(NoticeKind.TRUNCATED)] == [7]


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
    assert [str(b.origin.span) for b in host.blocks][:2] == ["id0:0-2", "id0:2-4"]


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


async def test_a_missing_file_is_said_once_and_again_when_it_goes_missing_again(host: Host) -> None:
    await host.look()
    await host.look()
    assert len(host.said(NoticeKind.MISSING)) == 1

    host.write("app.log", b"1\n")
    await host.ship()
    (host.folder / "app.log").unlink()
    await host.look()

    assert len(host.said(NoticeKind.MISSING)) == 2


async def test_a_folder_that_appears_later_is_followed(tmp_path: Path) -> None:
    host = Host(tmp_path, "later/*.log", "**/deep.log")
    await host.look()
    (tmp_path / "later").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    host.write("later/app.log", b"1\n")
    host.write("a/b/deep.log", b"2\n")

    assert sorted((await host.ship()).split()) == [b"1", b"2"]
    await host.follower.close()


async def test_hard_and_symbolic_links_are_followed_once(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log")
    host.write("a.log", b"1\n")
    (tmp_path / "b.log").hardlink_to(tmp_path / "a.log")
    (tmp_path / "c.log").symlink_to(tmp_path / "a.log")

    assert await host.ship() == b"1\n"
    assert len(host.follower.states()) == 1
    await host.follower.close()


async def test_a_switched_symbolic_link_leads_to_the_new_target(tmp_path: Path) -> None:
    host = Host(tmp_path, "current.log")
    host.write("day1", b"1\n")
    (tmp_path / "current.log").symlink_to("day1")
    await host.ship()
    host.write("day1", b"2\n")
    host.write("day2", b"3\n")
    (tmp_path / "current.log").unlink()
    (tmp_path / "current.log").symlink_to("day2")

    await host.ship()

    assert host.shipped == b"1\n2\n3\n"
    await host.follower.close()


async def test_pipes_and_folders_are_refused(tmp_path: Path) -> None:
    host = Host(tmp_path, "pipe", "folder")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()

    await host.ship()

    assert {notice.path for notice in host.notices} == {f"{tmp_path}/pipe", f"{tmp_path}/folder"}
    await host.follower.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_an_unreadable_file_is_said_once_and_read_when_it_may_be(host: Host) -> None:
    host.write("app.log", b"1\n")
    (host.folder / "app.log").chmod(0)
    await host.ship()
    await host.ship()
    assert len(host.said(NoticeKind.UNREADABLE)) == 1

    (host.folder / "app.log").chmod(0o600)

    assert await host.ship() == b"1\n"


async def test_a_change_wakes_the_follower(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    await host.follower.wait(0.2)

    host.write("app.log", b"2\n")
    async with asyncio.timeout(5):
        await host.follower.wait(60)

    assert await host.gather() == b"2\n"
    assert not host.follower.look_due


async def test_a_rename_makes_a_look_due(host: Host) -> None:
    host.write("app.log", b"1\n")
    await host.ship()
    await host.follower.wait(0.2)

    host.move("app.log", "app.log.1")
    async with asyncio.timeout(5):
        while not host.follower.look_due:
            await host.follower.wait(60)


async def test_watching_survives_a_folder_that_vanishes_and_comes_back(tmp_path: Path) -> None:
    host = Host(tmp_path, "logs/app.log")
    for number in range(3):
        (tmp_path / "logs").mkdir()
        host.write("logs/app.log", b"%d\n" % number)
        await host.ship()
        (tmp_path / "logs" / "app.log").unlink()
        (tmp_path / "logs").rmdir()
        await host.ship()
    (tmp_path / "logs").mkdir()
    host.write("logs/app.log", b"3\n")
    await host.ship()
    await host.follower.wait(0.2)

    host.write("logs/app.log", b"4\n")
    async with asyncio.timeout(5):
        await host.follower.wait(60)

    await host.gather()
    assert host.shipped == b"0\n1\n2\n3\n4\n"
    await host.follower.close()


async def test_few_descriptors_are_enough_for_many_files(tmp_path: Path) -> None:
    before = descriptors()
    host = Host(tmp_path, "*.log", open_files=5)
    for number in range(50):
        host.write(f"{number}.log", b"1\n")
    await host.ship()
    for number in range(50):
        host.write(f"{number}.log", b"2\n")

    await host.ship()

    assert len(host.shipped) == 200
    assert descriptors() - before < 30
    await host.follower.close()


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


async def test_many_rotations_leave_no_descriptors_behind(host: Host) -> None:
    for number in range(200):
        host.write("app.log", b"%d\n" % number)
        await host.ship()
        for old in range(3, 0, -1):
            if (host.folder / f"app.log.{old}").exists():
                host.move(f"app.log.{old}", f"app.log.{old + 1}")
        host.move("app.log", "app.log.1")
        host.later += 6 * SECOND

    assert host.shipped == b"".join(b"%d\n" % number for number in range(200))
    assert len(host.follower.states()) <= 7


async def test_unfinished_last_lines_of_rotated_files_wait_for_one_grace_not_one_after_another(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "app.log*")
    for number, name in enumerate(["app.log.2", "app.log.1", "app.log"]):
        host.write(name, b"%d" % number)
        os.utime(tmp_path / name, ns=(0, number))
    host.write("app.log", b"\n")
    assert await host.ship() == b""

    host.later = 6 * SECOND

    assert await host.ship() == b"0\n1\n2\n"
    await host.follower.close()


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


@pytest.mark.parametrize("budget", [500, 3000, 100_000])
async def test_nothing_comes_between_the_pieces_of_an_over_long_line(
    tmp_path: Path, budget: int
) -> None:
    host = Host(tmp_path, "*.log", block_size=100, max_line=300)
    for name in ("a.log", "b.log", "c.log"):
        host.write(name, b"short\n" * 100 + name[:1].encode() * 4000 + b"\n" + b"short\n" * 100)
    await host.look()

    while blocks := await host.follower.gather(budget):
        host.blocks += blocks

    for name in (b"a", b"b", b"c"):
        assert name * 4000 + b"\n" in host.shipped
    await host.follower.close()


async def test_an_over_long_line_is_finished_first_after_a_restart(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log", block_size=100, max_line=300)
    host.write("z.log", b"z" * 4000 + b"\n")
    await host.look()
    host.blocks += await host.follower.gather(1000)
    host.write("a.log", b"short\n")

    await host.restart()
    await host.ship()

    assert host.shipped == b"z" * 4000 + b"\n" + b"short\n"
    await host.follower.close()


async def test_other_files_wait_a_second_for_the_rest_of_an_over_long_line(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "*.log", block_size=100, max_line=300)
    host.write("a.log", b"a" * 1000)
    host.write("b.log", b"short\n")
    await host.look()
    assert await host.gather() == b"a" * 900
    assert host.follower.is_waiting

    host.write("a.log", b"a" * 500 + b"\n")
    await host.look()

    assert await host.gather() == b"a" * 600 + b"\n" + b"short\n"
    assert not host.follower.is_waiting
    await host.follower.close()


async def test_a_line_without_end_does_not_keep_other_files_waiting(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log", block_size=100, max_line=300)
    host.write("a.log", b"a" * 1000)
    host.write("b.log", b"short\n")
    await host.look()

    shipped = await host.gather()
    host.later += SECOND
    shipped += await host.gather()
    assert shipped == b"a" * 900 + b"short\n"

    host.write("c.log", b"c" * 100_000 + b"\n")
    await host.look()
    await host.follower.gather(1000)
    host.write("b.log", b"shorter\n")
    await host.look()
    payloads = [block.payload for block in await host.follower.gather(50_000)]
    assert b"shorter\n" in payloads
    await host.follower.close()


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
