"""Files that come and are deleted between two scans, such as those of pods that live shortly."""

import asyncio
import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from watchdog.observers import inotify_c

from nats_logship.app.files import FOLDER_ID
from shipper.sources.files.paths import Compression
from shipper.sources.notices import NoticeKind
from shipper.status.report import AgentMeter
from tests.descriptors import held_by, held_here
from tests.shipper.host import SECOND, Host
from tests.shipper.runtimes import Node, all_lines, by_container
from tests.shipper.sources.files.conftest import MakeHost
from tests.support import processes


def is_open(path: Path) -> bool:
    """Whether this process has the file at a path open."""
    return str(path.resolve()) in held_by(os.getpid())


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a thread of the follower."""
    await asyncio.to_thread(processes.wait_until, "a file is open", is_so, 30)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    for folder in ("log/containers", "lib/docker/containers"):
        (tmp_path / folder).mkdir(parents=True)
    return Node(tmp_path)


async def test_containers_that_end_before_a_scan_are_read_to_their_end(
    make_host: MakeHost, node: Node
) -> None:
    before, host = held_here(), make_host(*node.patterns)
    (long := node.start_pod("long")).write(1)
    await host.ship()
    pods = [node.start_pod(f"job-{number}") for number in range(5)]
    dockers = [node.start_docker(f"docker-{number}") for number in range(5)]
    for one in (*pods, *dockers):
        one.write(2)
    await wait_until(lambda: all(is_open(one.log) for one in (*pods, *dockers)))
    for one in (*pods, *dockers):
        one.write(1)
    for one in pods:
        node.delete(one)
    for one in dockers:
        shutil.rmtree(one.log.parent)
    long.write(1)
    await host.ship_out()

    assert by_container(host.shipped) == all_lines(long, *pods, *dockers)
    assert host.reported(NoticeKind.UNREAD) == []
    await host.follower.close()
    assert held_here() <= before


async def test_files_that_come_and_go_while_too_many_are_open_are_counted(
    make_host: MakeHost, node: Node
) -> None:
    host = make_host(*node.patterns, open_files=16)  # and 4 that came
    (long := node.start_pod("long")).write(1)
    await host.ship()
    pods = [node.start_pod(f"job-{number}") for number in range(4)]
    await wait_until(lambda: all(is_open(one.log) for one in pods))
    more = [node.start_pod(f"more-{number}") for number in range(3)]
    dangling = node.start_pod("dangling")
    for one in (*pods, *more, dangling):
        one.write(1)
    shutil.rmtree(dangling.log.parent.parent)
    for one in (*pods, *more):
        node.delete(one)
    long.write(1)
    await host.ship_out()
    assert dangling.link is not None
    dangling.link.unlink()
    (last := node.start_pod("last")).write(1)
    await wait_until(lambda: is_open(last.log))
    await host.ship_out()

    missed = host.reported(NoticeKind.UNREAD)
    assert by_container(host.shipped) == all_lines(long, *pods, last)
    assert {one.path for one in missed} == {str(node.root / "log/containers")}
    assert [one.text.split()[0] for one in missed] == ["3", "4"]
    assert missed[0].text.endswith(f"the last one is {more[-1].link}")
    assert missed[1].text.endswith(f"the last one is {dangling.link}")
    (meter := AgentMeter(host.clock)).count_notices(missed)
    assert meter.unread == [f"{missed[1].path}: {missed[1].text}"]


def replace_by_deletion(path: Path, line: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(line)


def replace_by_renaming(path: Path, line: bytes) -> None:
    (path.parent / "new").write_bytes(line)
    (path.parent / "new").rename(path)


def replace_target(path: Path, line: bytes) -> None:
    target = path.with_name(line.decode().strip())
    target.write_bytes(line)
    (path.parent / "new").symlink_to(target)
    (path.parent / "new").rename(path)


@pytest.mark.parametrize("put", [replace_by_deletion, replace_by_renaming, replace_target])
async def test_each_file_that_is_replaced_before_the_thread_runs_is_counted(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path, bytes], None]
) -> None:
    host, is_held, measure = make_host("*.log"), threading.Event(), os.stat
    may_go_on = threading.Event()

    def hold(path: str, *args: object, **options: object) -> os.stat_result:
        if threading.current_thread().name == "arrivals":
            is_held.set()
            may_go_on.wait(30)
        return measure(path, *args, **options)  # type: ignore[arg-type]

    await host.ship()
    monkeypatch.setattr(os, "stat", hold)
    host.write("first.log", b"first\n")
    assert await asyncio.to_thread(is_held.wait, 30)
    for number in range(3):
        put(host.folder / "a.log", b"%d\n" % number)
    host.write("last.log", b"last\n")
    may_go_on.set()
    await wait_until(lambda: is_open(host.folder / "last.log"))
    put(host.folder / "a.log", b"3\n")
    await host.ship_out()

    assert sorted(host.shipped.split()) == [b"2", b"3", b"first", b"last"]
    (missed,) = host.reported(NoticeKind.UNREAD)
    assert missed.path == str(host.folder)
    assert missed.text.split()[0] == "2"


async def test_files_that_are_written_and_deleted_at_one_path_are_read_in_order(host: Host) -> None:
    path, lines = host.folder / "app.log", b""
    host.write("app.log", b"first\n")
    await host.ship()
    for number in range(5):
        path.unlink()
        line = b"%d\n%d without an end" % (number, number)
        host.write("app.log", line)
        lines += line + b"\n"
        await wait_until(lambda: is_open(path))
    await host.ship_out()

    assert host.shipped.replace(b"end", b"end\n").replace(b"\n\n", b"\n") == (
        b"first\n" + lines.removesuffix(b"4 without an end\n")
    )


async def test_a_file_that_was_written_until_it_was_deleted_comes_before_its_successor(
    host: Host,
) -> None:
    await host.ship()
    host.write("app.log", b"1\n")
    await wait_until(lambda: is_open(host.folder / "app.log"))
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")
    host.backdate("app.log", SECOND)
    host.write("app.log.1", b"2\n")
    (host.folder / "app.log.1").unlink()
    await host.ship_out()

    assert host.shipped == b"1\n2\n3\n"


async def test_a_file_that_is_rotated_and_compressed_before_a_scan_is_read_once(host: Host) -> None:
    host.write("app.log", b"first\n")
    await host.ship()
    host.move("app.log", "app.log.2")
    host.write("app.log", b"second\n")
    await wait_until(lambda: is_open(host.folder / "app.log"))
    host.move("app.log", "app.log.1")
    host.pack("app.log.1")
    host.write("app.log", b"third\n")
    await wait_until(lambda: is_open(host.folder / "app.log"))
    host.move("app.log", "app.log.0")
    host.pack("app.log.0", Compression.ZSTD)
    host.write("app.log", b"fourth\n")
    await host.ship_out()

    assert host.shipped == b"first\nsecond\nthird\nfourth\n"


async def test_rotations_before_a_scan_are_read_in_order_if_all_but_one_were_compressed(
    host: Host,
) -> None:
    host.write("app.log", b"0\n")
    await host.ship()
    for number in range(1, 5):
        if number > 1:
            host.move("app.log.1", f"app.log.{9 - number}")
            host.pack(f"app.log.{9 - number}")
        host.move("app.log", "app.log.1")
        host.write("app.log", b"%d\n" % number)
        await wait_until(lambda: is_open(host.folder / "app.log"))
    await host.ship_out()

    assert host.shipped == b"0\n1\n2\n3\n4\n"


async def test_a_file_that_is_rotated_by_copy_and_deletion_before_a_scan_is_read_once(
    host: Host,
) -> None:
    host.write("app.log", b"%064d\n" % 0)
    await host.ship()
    host.move("app.log", "app.log.2")
    host.write("app.log", b"%064d\n" % 1)
    await wait_until(lambda: is_open(host.folder / "app.log"))
    shutil.copy(host.folder / "app.log", host.folder / "app.log.1")
    (host.folder / "app.log").unlink()
    host.write("app.log", b"%064d\n" % 2)
    await host.ship_out()

    assert host.shipped == b"".join(b"%064d\n" % number for number in range(3))


async def test_a_link_to_a_file_of_ours_that_comes_and_goes_is_not_read(host: Host) -> None:
    host.write("other.log", b"a line\n")
    await host.retarget("*.log")
    await host.ship()
    (ours := host.folder / "received").mkdir()
    (ours / FOLDER_ID).touch()
    (ours / "web01.log").write_bytes(b"received\n")
    (host.folder / "link.log").symlink_to(ours / "web01.log")
    host.write("next.log", b"next\n")
    await wait_until(lambda: is_open(host.folder / "next.log"))
    shutil.rmtree(ours)
    (host.folder / "link.log").unlink()
    await host.ship_out()

    assert host.shipped == b"a line\nnext\n"


async def test_a_file_that_is_renamed_before_a_scan_is_read_once(host: Host) -> None:
    await host.retarget("*")
    await host.ship()
    for number in range(3):
        host.write("new.tmp", b"%d\n" % number)
        await wait_until(lambda: is_open(host.folder / "new.tmp"))
        host.move("new.tmp", f"done-{number}")
    await host.ship_out()

    assert sorted(host.shipped.splitlines()) == [b"0", b"1", b"2"]
    assert host.reported(NoticeKind.UNREAD) == []


async def test_deleted_files_that_are_not_shipped_leave_descriptors_for_others(
    make_host: MakeHost,
) -> None:
    host = make_host("*.log", open_files=16)  # and 4 that came

    def count_held() -> int:
        return sum(path.startswith(str(host.folder)) for path in held_by(os.getpid()))

    host.write("a.log", b"a line\n")
    await host.scan()
    for number in range(10):
        names = [f"{number}-{one}.log" for one in range(4)]
        for name in names:
            host.write(name, b"%d\n" % number)
        least = min(5 + 4 * number, 16 + 4)
        await wait_until(lambda least=least: count_held() >= least)
        for name in names:
            (host.folder / name).unlink()
        await host.scan()
        assert count_held() <= 16 + 4
    await host.ship_out()

    missed = [int(one.text.split()[0]) for one in host.reported(NoticeKind.UNREAD)]
    assert len(host.shipped.splitlines()) + max(missed, default=0) == 1 + 40


@pytest.mark.parametrize("is_link", [False, True], ids=["file", "link"])
async def test_a_file_that_is_moved_away_before_a_scan_is_read_once(
    make_host: MakeHost, *, is_link: bool
) -> None:
    host = make_host("*.log")
    await host.ship()
    if is_link:
        host.write("target", b"a line\n")
        (host.folder / "a.log").symlink_to("target")
    else:
        host.write("a.log", b"a line\n")
    await wait_until(lambda: is_open(host.folder / "a.log"))
    target = (host.folder / "a.log").rename(host.folder / "b")
    if is_link:
        target.unlink()
        target = host.folder / "target"
    await host.ship()
    with target.open("ab") as file:
        file.write(b"another\n")
    await host.ship()
    target.rename(host.folder / "c.log")
    await host.ship()
    (host.folder / "c.log").unlink()
    await host.ship_out()

    assert host.shipped == b"a line\nanother\n"


async def test_what_a_file_that_was_deleted_while_it_was_empty_gets_late_is_read(
    make_host: MakeHost,
) -> None:
    host = make_host("*.log")
    await host.ship()
    with (host.folder / "a.log").open("ab") as file:
        await wait_until(lambda: held_by(os.getpid()).count(file.name) == 2)
        (host.folder / "a.log").unlink()
        await host.ship()
        file.write(b"late\n")
    await host.ship_out()

    assert host.shipped == b"late\n"


@pytest.mark.parametrize("is_followed", [False, True], ids=["came", "followed"])
async def test_a_file_that_another_machine_deleted_keeps_no_others_waiting(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, *, is_followed: bool
) -> None:
    host, measure = make_host("*.log"), os.fstat
    await host.ship()
    host.write("a.log", b"a line\n")
    await wait_until(lambda: is_open(host.folder / "a.log"))
    inode = (host.folder / "a.log").stat().st_ino
    if is_followed:
        await host.ship()

    def fail(descriptor: int) -> os.stat_result:
        if (found := measure(descriptor)).st_ino == inode:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return found

    monkeypatch.setattr(os, "fstat", fail)
    (host.folder / "a.log").unlink()
    host.write("b.log", b"b\n")
    await host.ship_out()

    assert host.shipped == b"a line\n" * is_followed + b"b\n"
    assert is_followed or host.reported(NoticeKind.UNREADABLE)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("**", "old/a.log"),
        ("**", "new/deep/a.log"),
        ("**/*.log", "new/deep/a.log"),
        ("*/*/*.log", "new/deep/a.log"),
        ("{x,old/*}.log", "old/a.log"),
        ("{old,new*/*}/*.log", "new/deep/a.log"),
    ],
)
async def test_a_file_that_comes_and_goes_is_read_in_any_folder_that_patterns_lead_to(
    make_host: MakeHost, pattern: str, name: str
) -> None:
    host = make_host(pattern)
    host.selection = replace(host.selection, excluded=(str(host.folder / "left"),))
    await host.follower.retarget(host.selection)
    (host.folder / "old").mkdir()
    await host.ship()
    await host.ship()
    for one in (host.folder / "empty/deep", (host.folder / name).parent, host.folder / "left/out"):
        one.mkdir(parents=True, exist_ok=True)
    host.write(name, b"a line\n")
    host.write("left/out/a.log", b"left out\n")
    await wait_until(lambda: is_open(host.folder / name))
    for one in ("empty", "left", name.partition("/")[0]):
        shutil.rmtree(host.folder / one)
    await host.ship_out()

    assert host.shipped == b"a line\n"
    assert host.reported(NoticeKind.UNREAD) == []


async def test_what_is_no_file_of_lines_and_comes_and_goes_is_neither_read_nor_reported(
    make_host: MakeHost,
) -> None:
    host = make_host("*")
    await host.ship()
    names = ("a.zip", "b.gz", "c", "d", "e", "f.log")
    for name in ("a.zip", "b.gz"):
        host.write(name, b"packed\n")
    os.mkfifo(host.folder / "c")
    (host.folder / "d").symlink_to("/")
    (host.folder / "e").symlink_to("/proc/version")
    host.write("f.log", b"a line\n")
    await wait_until(lambda: is_open(host.folder / "f.log"))
    for name in names:
        (host.folder / name).unlink()
    await host.ship_out()

    assert host.shipped == b"a line\n"
    assert host.reported(NoticeKind.UNREAD) == []


async def test_a_scan_that_hangs_while_the_follower_ends_watches_nothing_later(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = held_by(os.getpid()).count("anon_inode:inotify")  # of tests whose threads end late
    host, hangs, has_ended = make_host("*.log"), threading.Event(), threading.Event()

    def hang(*_: object) -> int:
        hangs.set()
        has_ended.wait(30)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_add_watch", hang)
    scan = asyncio.create_task(host.scan())
    assert await asyncio.to_thread(hangs.wait, 30)
    await host.follower.close()
    has_ended.set()
    await scan

    assert held_by(os.getpid()).count("anon_inode:inotify") <= before


async def test_a_file_that_came_and_is_selected_no_more_is_not_read(make_host: MakeHost) -> None:
    host = make_host("*.log")
    await host.ship()
    host.write("a.log", b"a\n")
    host.write("b.log", b"b\n")
    await wait_until(lambda: all(is_open(host.folder / name) for name in ("a.log", "b.log")))
    await host.retarget("b.*")
    for name in ("a.log", "b.log"):
        (host.folder / name).unlink()
    await host.ship_out()

    assert host.shipped == b"b\n"


async def test_it_is_reported_once_that_files_that_come_cannot_be_watched(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = inotify_c.inotify_init, list[int]()

    def fail_after_the_first() -> int:
        if not begun:
            begun.append(begin())
            return begun[0]
        ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(inotify_c, "inotify_init", fail_after_the_first)
    host = make_host("*.log")
    for _ in range(3):
        await host.ship()

    (notice,) = host.reported(NoticeKind.UNWATCHED)
    assert notice.text.endswith("raise fs.inotify.max_user_instances")
