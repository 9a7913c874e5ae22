"""Rotation is succession at a path, whatever the names; what is not found again is reported."""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shipper.sources.files.identity import FileEntry, FileKey, Sample
from shipper.sources.files.paths import Compression
from shipper.sources.files.succession import is_newer, oldest_first
from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host, pack
from tests.shipper.sources.files.conftest import MakeHost

HOUR = 3600 * SECOND


def lines(text: str) -> bytes:
    """Return enough lines to recognise a file by."""
    return b"".join(b"%s %d\n" % (text.encode(), number) for number in range(20))


def unread(host: Host) -> list[str]:
    return [notice.path.rpartition("/")[2] for notice in host.reported(NoticeKind.UNREAD)]


# the name that the old file gets, and what becomes of the path

NAMES = [
    *("app.log.1", "app.1.log", "app-20260101.log", "app.log-20260101", "app.log.old"),
    *("old/app.log", "old/app.log.1", "old/another name", "another name"),
]


@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("pattern", ["app.log", "*.log", "**/*"])
@pytest.mark.parametrize("name", NAMES)
async def test_the_rest_of_a_rotated_file_comes_before_its_successor_whatever_it_is_called(
    make_host: MakeHost, pattern: str, name: str, *, is_down: bool
) -> None:
    host = make_host(pattern)
    (host.folder / "old").mkdir()
    host.write("app.log", lines("a"))
    await host.ship()
    if is_down:
        await host.restart_with_saved_positions()
    host.write("app.log", lines("b"))
    host.move("app.log", name)
    host.write("app.log", lines("c"))

    await host.ship()
    host.write(name, lines("late"))
    await host.ship()

    assert host.shipped == lines("a") + lines("b") + lines("c") + lines("late")
    assert len({block.section.span.file_id for block in host.blocks}) == 2
    assert unread(host) == []


@pytest.mark.parametrize("older", [-1, 0, 1], ids=["written late", "newer", "backdated"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("app.log.2", "app.log.1"),
        ("app.2.log", "app.1.log"),
        ("app.log-20260101", "app.log-20260102"),
        ("app-20260101.log", "app-20260102.log"),
        ("app.log.2.gz", "app.log.1"),
        ("app.log.2.gz", "app.log.1.gz"),
        ("old/app.log.2", "old/app.log.1"),
        ("old/app.log.2.gz", "old/app.log.1.gz"),
        ("old/app.log-20260101", "old/app.log-20260102"),
    ],
)
async def test_a_file_that_came_and_was_rotated_while_the_agent_was_down_is_read_in_order(
    host: Host, first: str, second: str, older: int
) -> None:
    (host.folder / "old").mkdir()
    host.write("app.log", lines("a"))
    await host.ship()
    await host.restart_with_saved_positions()
    host.write("app.log", lines("b"))
    for name in (first, second):
        host.move("app.log", name.removesuffix(".gz"))
        if name.endswith(".gz"):
            host.pack(name.removesuffix(".gz"))
        host.write("app.log", lines("c" if name == first else "d"))
    host.backdate(second, older * 2 * HOUR)

    await host.ship_out()

    assert host.shipped == b"".join(map(lines, "abcd"))
    assert unread(host) == []


@pytest.mark.parametrize("older", [0, 1], ids=["newer", "backdated"])
@pytest.mark.parametrize("rotations", [1, 2, 4])
@pytest.mark.parametrize("is_known", [False, True], ids=["first rotation", "later rotation"])
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_rotated_files_in_a_folder_that_is_followed_too_are_read_in_order(
    make_host: MakeHost, rotations: int, older: int, *, is_known: bool, is_down: bool
) -> None:
    host = make_host("app.log", "old/*")
    old = host.folder / "old"
    old.mkdir()

    def rotate(text: str) -> None:
        for number in range(len(list(old.iterdir())), 0, -1):
            host.move(f"old/app.log.{number}", f"old/app.log.{number + 1}")
        host.move("app.log", "old/app.log.1")
        host.write("app.log", lines(text))

    host.write("app.log", lines("a"))
    await host.ship()
    if is_known:
        rotate("b")
        await host.ship()
    if is_down:
        await host.restart_with_saved_positions()
    for number in range(rotations):
        rotate(f"c{number}")
    host.backdate("old/app.log.1", older * 2 * HOUR)

    await host.ship_out()

    rotated = b"".join(lines(f"c{number}") for number in range(rotations))
    assert host.shipped == lines("a") + lines("b") * is_known + rotated
    assert unread(host) == []


def make_pod(host: Host) -> None:
    (host.folder / "pods").mkdir()
    host.write("pods/0.log", lines("a"))
    (host.folder / "x.log").symlink_to("pods/0.log")


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("rotations", [1, 2])
@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_the_target_of_a_link_is_followed_through_its_rotation_in_its_own_folder(
    make_host: MakeHost, rotations: int, *, is_down: bool, is_packed: bool
) -> None:
    host = make_host("*.log")
    make_pod(host)
    await host.ship()
    if is_down:
        await host.restart_with_saved_positions()
    host.write("pods/0.log", lines("b"))
    for number in range(rotations):
        rotated = f"pods/0.log.20260109-07110{number}"
        host.move("pods/0.log", rotated)
        if is_packed and number == 0:
            host.pack(rotated)
        host.write("pods/0.log", lines(str(number)))

    await host.ship_out()

    expected = lines("a") + lines("b") + b"".join(lines(str(n)) for n in range(rotations))
    assert host.shipped == expected
    assert unread(host) == []


@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("link", ["current", "app.log"], ids=["of a folder", "of a file"])
async def test_what_the_old_target_of_a_link_gets_late_is_read(
    make_host: MakeHost, link: str, *, is_down: bool
) -> None:
    of_folder = link == "current"
    host = make_host("current/log/app.log" if of_folder else "app.log")
    for version in ("v1", "v2"):
        (host.folder / version / "log").mkdir(parents=True)
    host.write("v1/log/app.log", lines("a"))
    host.switch(link, "v1" if of_folder else "v1/log/app.log")
    await host.ship()
    host.switch(link, "v2" if of_folder else "v2/log/app.log")
    host.write("v2/log/app.log", lines("new"))
    await host.ship_out()
    host.later += 60 * SECOND
    await host.ship_out()
    if is_down:
        await host.restart_with_saved_positions()

    host.write("v1/log/app.log", lines("late"))
    await host.ship_out()

    # after a start, the target of a switched link is in a folder that nothing names
    expected = lines("a") + lines("new") + (b"" if is_down and not of_folder else lines("late"))
    assert host.shipped == expected


async def test_a_file_that_was_moved_elsewhere_is_held_as_long_as_a_deleted_one(
    tmp_path: Path, make_host: MakeHost
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    host = make_host("logs/app.log", hold=3600.0)
    host.write("logs/app.log", lines("a"))
    await host.ship()
    host.move("logs/app.log", "elsewhere/a")
    await host.ship_out()
    host.later += 3000 * SECOND
    await host.ship_out()

    host.write("elsewhere/a", lines("late"))
    await host.ship()
    assert host.shipped == lines("a") + lines("late")

    host.later += 700 * SECOND
    await host.ship()
    assert [notice.lost for notice in host.reported(NoticeKind.GONE)] == [0]
    assert host.follower.files() == []


async def test_a_deleted_file_is_held_for_its_writer(make_host: MakeHost) -> None:
    host = make_host("app.log", hold=3600.0)
    with (host.folder / "app.log").open("ab", buffering=0) as writer:
        for number in range(3):
            writer.write(lines(f"{number}"))
            await host.ship_out()
            (host.folder / "app.log").unlink(missing_ok=True)
            await host.ship_out()
        host.later += 3600 * SECOND
        await host.ship_out()
        assert [notice.lost for notice in host.reported(NoticeKind.GONE)] == [0]

    assert host.shipped == lines("0") + lines("1") + lines("2")


async def test_a_deleted_file_is_held_no_longer_once_its_writer_has_closed_it(
    make_host: MakeHost,
) -> None:
    host = make_host("app.log", hold=3600.0)
    with (host.folder / "app.log").open("ab", buffering=0) as writer:
        writer.write(lines("0"))
        await host.ship()
        (host.folder / "app.log").unlink()
        await host.ship_out()
        assert host.follower.open_files == 1
    await host.ship_out()

    assert host.follower.open_files == 0
    assert host.shipped == lines("0")


@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
async def test_a_rotation_that_copies_each_file_over_the_older_one_ships_each_line_once(
    host: Host, *, is_down: bool
) -> None:
    expected, last = b"", host.folder / "app.log"
    for number in range(4):
        # each is longer than the one before: none seems to be truncated
        host.write("app.log", lines(f"{number}") * (number + 1))
        expected += last.read_bytes()
        await host.ship_out()
        if is_down:
            await host.restart_with_saved_positions()
        for older in range(number, -1, -1):
            before = host.folder / (f"app.log.{older}" if older else "app.log")
            (host.folder / f"app.log.{older + 1}").write_bytes(before.read_bytes())
        os.truncate(last, 0)
        await host.ship_out()

    assert host.shipped == expected
    assert {notice.lost for notice in host.reported(NoticeKind.TRUNCATED)} <= {0}


def delete_behind_copy(host: Host) -> None:
    (host.folder / "app.log.1").write_bytes((host.folder / "app.log").read_bytes())
    (host.folder / "app.log").unlink()


def replace_behind_copy(host: Host) -> None:
    (host.folder / "app.log.1").write_bytes((host.folder / "app.log").read_bytes())
    host.write("new", b"")
    host.move("new", "app.log")


@pytest.mark.parametrize("rotate", [delete_behind_copy, replace_behind_copy])
@pytest.mark.parametrize("is_seen", [False, True], ids=["at once", "later"])
async def test_a_few_lines_that_are_copied_before_their_file_is_deleted_are_shipped_once(
    host: Host, rotate: Callable[[Host], None], *, is_seen: bool
) -> None:
    for number in range(3):
        host.write("app.log", b"%d\n" % number)
        await host.ship_out()
        for older in range(number, 0, -1):
            host.move(f"app.log.{older}", f"app.log.{older + 1}")
        rotate(host)
        if is_seen:
            await host.ship_out()
    host.write("app.log", b"3\n")
    await host.ship_out()

    assert host.shipped == b"0\n1\n2\n3\n"


async def test_a_rotated_file_with_the_few_lines_of_one_deleted_before_is_shipped(
    make_host: MakeHost,
) -> None:
    host = make_host("app.log", listen=False)
    for _ in range(3):
        host.write("app.log", b"OK\n")
        await host.ship()
        (host.folder / "app.log").unlink()
        await asyncio.sleep(0.05)  # the file system's clock ticks
        host.write("app.log", b"OK\n")
        host.move("app.log", "app.log.1")
        await host.ship()
        (host.folder / "app.log.1").unlink()

    assert host.shipped == b"OK\n" * 6


async def test_a_dated_file_with_the_few_lines_of_an_older_one_that_is_deleted_is_shipped(
    make_host: MakeHost,
) -> None:
    host = make_host("app*.log")
    host.write("app.log", b"x\n")
    host.write("app-20260101.log", b"OK\n")
    await host.ship()
    await asyncio.sleep(0.05)  # the file system's clock ticks
    host.write("app-20260102.log", b"OK\n")
    await asyncio.sleep(0.05)
    (host.folder / "app-20260101.log").unlink()
    await host.ship_out()

    assert sorted(host.shipped.split()) == [b"OK", b"OK", b"x"]


async def test_each_of_many_rotated_files_is_read_once_to_compare_its_beginning(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        host.write("app.log", lines(f"old {number}"))
        await host.ship()
        host.move("app.log", f"app.log-20260101{number:02}")
    await host.ship()
    for number in range(60):
        host.write(f"app.log-20260102{number:02}", lines(f"new {number}"))
    reads, pread = itertools.count(), os.pread
    monkeypatch.setattr(os, "pread", lambda *given: (next(reads), pread(*given))[1])

    await host.scan()

    assert next(reads) < 60 * 60
    await host.ship_out()
    assert host.shipped.count(b"new ") == 60 * 20


# what a start cannot account for


def delete(host: Host) -> None:
    (host.folder / "app.log").unlink()


def delete_and_write_anew(host: Host) -> None:
    host.write("other", lines("other"))  # or the new file may get the same inode
    delete(host)
    host.write("app.log", lines("new"))


def cut(host: Host) -> None:
    os.truncate(host.folder / "app.log", 0)
    host.write("app.log", lines("new"))


def rotate_and_delete(host: Host) -> None:
    host.write("app.log", lines("b"))
    host.move("app.log", "gone")
    host.write("app.log", lines("new"))
    (host.folder / "gone").unlink()


def compress_otherwise(host: Host) -> None:
    host.write("app.log", lines("b"))
    host.write("app.log.1.lz4", b"lz4" * 100)
    delete(host)
    host.write("app.log", lines("new"))


@pytest.mark.parametrize(
    ("happen", "reported"),
    [
        (delete, ["app.log"]),
        (delete_and_write_anew, ["app.log"]),
        (cut, ["app.log"]),
        (rotate_and_delete, ["app.log"]),
        (compress_otherwise, ["app.log", "app.log.1.lz4"]),
    ],
)
async def test_a_start_reports_once_what_may_have_been_lost_while_it_was_down(
    host: Host, happen: Callable[[Host], None], reported: list[str]
) -> None:
    host.write("app.log", lines("a"))
    await host.ship()
    await host.restart_with_saved_positions()
    happen(host)

    await host.ship()
    await host.ship()

    assert unread(host) == reported
    assert f"behind byte {len(lines('a'))} " in host.reported(NoticeKind.UNREAD)[0].text
    await host.restart_with_saved_positions()
    await host.ship()
    assert unread(host) == reported


async def test_a_sibling_that_may_be_unread_is_reported_with_its_size(host: Host) -> None:
    host.write("app.log", lines("a"))
    await host.ship()
    host.move("app.log", "app.log.1")
    await host.ship_out()
    host.later += 60 * SECOND
    host.write("app.log", lines("b"))
    await host.ship()
    await host.restart_with_saved_positions()
    (host.folder / "app.log.1").unlink()
    host.write("app.log.old", lines("x"))
    host.backdate("app.log.old", -30 * SECOND)

    await host.ship()

    (notice,) = host.reported(NoticeKind.UNREAD)
    assert (notice.path, notice.lost) == (str(host.folder / "app.log.old"), len(lines("x")))


@pytest.mark.parametrize("compression", [None, Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("restarts", [False, True])
async def test_nothing_is_reported_where_rotation_goes_its_ordinary_way(
    host: Host, compression: Compression | None, *, restarts: bool
) -> None:
    ending = compression.value if compression else ""
    host.write("app.log.2", lines("from before"))
    for number in range(6):
        host.write("app.log", lines(f"first of {number}"))
        await host.ship_out()
        if restarts:
            await host.restart_with_saved_positions()
        host.write("app.log", lines(f"last of {number}"))
        (host.folder / f"app.log.2{ending}").unlink(missing_ok=True)
        if (last := host.folder / f"app.log.1{ending}").exists():
            host.move(last.name, f"app.log.2{ending}")
        host.move("app.log", "app.log.1")
        if compression:
            pack(host.folder / "app.log.1", compression)
        host.write("app.log", lines(f"begin of {number + 1}"))
        await host.ship_out()
        if restarts:
            await host.restart_with_saved_positions()

    await host.ship()
    (host.folder / "app.log").unlink()
    await host.ship_out()
    await host.restart_with_saved_positions()
    await host.ship_out()
    assert host.shipped.count(b"of ") == 6 * 3 * 20
    assert host.reported(NoticeKind.UNREAD) == []


# an unfinished last line


async def test_an_unfinished_line_that_grows_holds_its_successor_back_for_a_bounded_time(
    host: Host,
) -> None:
    host.write("app.log", b"1\nwork")
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"2\n")
    for _ in range(10):
        host.write("app.log.1", b".")
        await host.ship()
        host.later += 3 * SECOND

    assert host.shipped == b"1\n2\n"
    host.write("app.log.1", b"done\n")
    await host.ship()
    assert host.shipped == b"1\n2\n" + b"work" + b"." * 10 + b"done\n"


@pytest.mark.parametrize("is_read", [False, True], ids=["at once", "long after"])
async def test_late_lines_of_the_old_target_of_a_link_to_a_file_are_read_after_a_restart(
    make_host: MakeHost, *, is_read: bool
) -> None:
    host = make_host("log/app.log")
    for name in ("log", "opt/v1", "opt/v2"):
        (host.folder / name).mkdir(parents=True)
    host.write("opt/v1/app.log", lines("a"))
    (host.folder / "log/app.log").symlink_to("../opt/v1/app.log")
    await host.ship()
    host.write("opt/v2/app.log", lines("b"))
    host.switch("log/app.log", "../opt/v2/app.log")
    await host.ship_out()
    await host.restart_with_saved_positions()
    if is_read:
        await host.ship_out()

    host.write("opt/v1/app.log", lines("late"))
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b") + lines("late")


@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("new", [1, 2, 4])
async def test_files_that_are_begun_with_numbers_that_count_up_are_read_in_that_order(
    make_host: MakeHost, new: int, *, is_down: bool
) -> None:
    host = make_host("app.log*")
    names = ["app.log", *(f"app.log.{number}" for number in range(1, new + 3))]
    for name in names[:3]:
        host.write(name, lines(name))
        await host.ship()
    if is_down:
        await host.restart_with_saved_positions()
    host.write(names[2], lines("rest"))
    for name in names[3:]:
        host.write(name, lines(name))

    await host.ship_out()

    before = b"".join(map(lines, names[:3]))
    assert host.shipped == before + lines("rest") + b"".join(map(lines, names[3:]))


# rotation that renames no file


@pytest.mark.parametrize("is_down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("read", [b"", b"a 0\n"], ids=["unread", "read"])
async def test_files_whose_numbers_count_up_are_read_in_the_order_of_their_numbers(
    make_host: MakeHost, read: bytes, *, is_down: bool
) -> None:
    host = make_host("app.log*")
    host.write("app.log", read)
    await (host.ship() if read else host.scan())
    host.write("app.log", lines("a"))
    host.backdate("app.log", 3 * SECOND)
    host.write("app.log.1", lines("b"))
    host.backdate("app.log.1", 2 * SECOND)
    await (host.restart_with_saved_positions() if is_down else host.scan())
    host.write("app.log.2", lines("c"))
    await host.ship_out()

    assert host.shipped == read + lines("a") + lines("b") + lines("c")


async def scan_each(host: Host) -> None:
    await host.scan()
    host.write("app.log.1", lines("b"))
    then = (host.folder / "app.log").stat().st_mtime_ns
    os.utime(host.folder / "app.log.1", ns=(then, then))  # written in one tick of the clock


async def find_at_once(host: Host) -> None:
    host.write("app.log.1", lines("b"))
    host.backdate("app.log", SECOND)


async def find_and_restart(host: Host) -> None:
    await find_at_once(host)
    await host.scan()
    await host.restart_with_saved_positions()


async def read_and_rewind(host: Host) -> None:
    await find_at_once(host)
    await host.ship()
    host.blocks.clear()
    await host.follower.rewind({})


@pytest.mark.parametrize("happen", [scan_each, find_at_once, find_and_restart, read_and_rewind])
async def test_the_first_two_files_whose_numbers_count_up_are_read_in_their_order(
    make_host: MakeHost, happen: Callable[[Host], Awaitable[None]]
) -> None:
    host = make_host("app.log*")
    host.write("app.log", lines("a"))
    await happen(host)
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b")


@pytest.mark.parametrize("way", ["rename", "copy"])
@pytest.mark.parametrize("rotations", [1, 2])
async def test_a_rotated_file_that_was_written_late_is_read_first_by_the_first_start(
    make_host: MakeHost, rotations: int, way: str
) -> None:
    host = make_host("app.log*")
    host.write("app.log", lines("0"))
    for number in range(rotations):
        if number:
            host.move("app.log.1", "app.log.2")
        if way == "rename":
            host.move("app.log", "app.log.1")
        else:
            host.write("app.log.1", (host.folder / "app.log").read_bytes())
            os.truncate(host.folder / "app.log", 0)
        host.write("app.log", lines(f"{number + 1}"))
    host.backdate("app.log.1", -SECOND if way == "rename" else SECOND)
    await host.ship_out()

    assert host.shipped == b"".join(lines(f"{number}") for number in range(rotations + 1))


async def test_a_late_copy_counts_as_rotated_where_files_are_renamed(make_host: MakeHost) -> None:
    host = make_host("app.log*")
    host.write("app.log", lines("a"))
    await host.ship()
    host.move("app.log", "app.log.2")
    host.write("app.log", lines("c"))
    host.write("app.log.1", lines("b"))
    host.backdate("app.log", SECOND)
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b") + lines("c")


async def test_a_file_that_was_deleted_is_none_that_kept_its_name(host: Host) -> None:
    host.write("app.log", lines("a"))
    await host.ship()
    host.follower.stored = lambda _: 0
    (host.folder / "app.log").unlink()
    await host.scan()
    host.write("app.log", lines("b"))
    host.move("app.log", "app.log.1")
    host.write("app.log", lines("c"))
    host.backdate("app.log.1", -HOUR)
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b") + lines("c")


async def test_dated_files_behind_a_link_to_the_first_are_read_in_their_order(
    make_host: MakeHost,
) -> None:
    host = make_host("app.log")
    host.write("app-20260101-120000.log", b"")
    host.switch("app.log", "app-20260101-120000.log")
    await host.scan()
    host.write("app-20260101-120000.log", lines("a"))
    for second in range(1, 4):
        host.write(f"app-20260101-12000{second}.log", lines(f"{second}"))
        await host.scan()
    await host.ship_out()

    assert host.shipped == lines("a") + lines("1") + lines("2") + lines("3")


async def test_a_rotated_file_comes_before_its_successor_if_an_older_one_is_gone_since_a_scan(
    make_host: MakeHost,
) -> None:
    host = make_host("app.log")
    host.write("app.log", lines("a"))
    await host.ship()
    (host.folder / "app.log").unlink()
    host.write("app.log", lines("b"))
    host.move("app.log", "app.log.1")
    host.write("app.log", lines("c"))
    now = (host.folder / "app.log").stat().st_mtime_ns
    os.utime(host.folder / "app.log.1", ns=(now, now))  # written in one tick of the clock
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b") + lines("c")


async def test_a_rotated_file_that_was_found_empty_comes_before_its_successor_after_a_restart(
    make_host: MakeHost,
) -> None:
    host = make_host("app.log")
    host.write("app.log", lines("a"))
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"")
    await host.scan()
    host.write("app.log", lines("b"))
    host.move("app.log.1", "app.log.2")
    host.move("app.log", "app.log.1")
    host.write("app.log", lines("c"))
    await host.scan()
    await host.restart_with_saved_positions()
    await host.ship_out()

    assert host.shipped == lines("a") + lines("b") + lines("c")


# the order of files that were found together


def found(name: str, modified: int) -> Sample:
    path = f"/logs/{name}"
    entry = FileEntry(path, path, "/logs/app.log", FileKey(1, 1), 1, modified, False)
    return Sample(entry, 1, b"", ())


NAMES_BY_FORM = [
    [f"app.log.{number}{ending}" for number in range(9) for ending in ("", ".gz")],
    [f"app.log-2026010{number}" for number in range(9)],
    [f"app.log.{word}" for word in ("old", "bak", "save")],
]


@given(
    st.sampled_from([*NAMES_BY_FORM, [*itertools.chain(*NAMES_BY_FORM)]]).flatmap(
        lambda names: st.dictionaries(st.sampled_from(names), st.integers(0, 3))
    )
)
def test_a_file_is_placed_behind_the_last_one_that_is_older(times: dict[str, int]) -> None:
    expected: list[Sample] = []
    for file in sorted((found(*one) for one in times.items()), key=lambda one: one.entry.age):
        older = (n for n, one in enumerate(expected, 1) if is_newer(file.entry, one.entry))
        expected.insert(max(older, default=0), file)

    assert oldest_first(found(*one) for one in times.items()) == expected
