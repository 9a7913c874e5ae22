"""Which files are followed, and from where on: folders of any depth, that come and go."""

import os
import socket
from pathlib import Path

import pytest

from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host
from tests.shipper.sources.files.conftest import MakeHost


def make(host: Host, *names: str) -> None:
    for name in names:
        (host.folder / name).parent.mkdir(parents=True, exist_ok=True)
        host.write(name, f"{name}\n".encode())


async def test_two_stars_lead_to_every_depth_but_to_nothing_hidden(make_host: MakeHost) -> None:
    tree = make_host("**/*.log")
    make(tree, "a.log", "x/b.log", "x/y/z/c.log", ".hidden/d.log", "x/.e.log", "x/.y/f.log")
    (tree.folder / "x/y/up").symlink_to("..")
    (tree.folder / "x/self").symlink_to("self")

    assert sorted((await tree.ship()).split()) == [b"a.log", b"x/b.log", b"x/y/z/c.log"]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        pytest.param("logs/*/app.log", "logs/web/app.log", id="a folder under a star"),
        pytest.param("logs/a/b/*.log", "logs/a/b/app.log", id="the folders of a glob"),
    ],
)
async def test_a_folder_that_appears_later_is_noticed_when_it_does(
    tmp_path: Path, make_host: MakeHost, pattern: str, name: str
) -> None:
    host = make_host(pattern)
    (tmp_path / "logs").mkdir()
    await host.ship()
    await host.ship()

    make(host, name)

    await host.until_shipped(f"{name}\n".encode())
    await host.wait(0.1)
    while host.follower.is_scan_due:
        await host.ship()
    host.write(name, b"more\n")
    await host.until_shipped(b"more\n")


async def test_special_files_are_refused_by_name_without_waiting_for_anyone(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        host.write("a.log", b"1\n")

        assert await host.ship() == b"1\n"

    refused = {n.path.rpartition("/")[2]: n.text for n in host.reported(NoticeKind.REFUSED)}
    assert refused == {
        "pipe": "is a pipe; name each pipe in --file, without *; it must exist at the start",
        **dict.fromkeys(["null", "socket"], "is a socket or a device, not a file"),
    }


@pytest.mark.parametrize("pattern", ["a.log", "*.log"])
async def test_another_selection_keeps_what_it_shows_and_begins_new_files_at_their_end(
    tmp_path: Path, make_host: MakeHost, pattern: str
) -> None:
    host = make_host("a.log", "b.log")
    make(host, "a.log", "b.log")
    await host.ship()
    host.write("b.log", b"b2\n")
    host.write("c.log", b"old\n")

    await host.retarget(pattern, from_end=True)

    shown = {state.path for state in host.follower.files()}
    everything = pattern == "*.log"
    assert shown == {str(tmp_path / "a.log"), *[str(tmp_path / "b.log")] * everything}
    assert host.follower.open_files == len(shown)
    assert await host.ship() == b"b2\n" * everything
    host.write("c.log", b"new\n")
    host.write("d.log", b"later\n")
    assert sorted((await host.ship()).split()) == [b"later", b"new"] * everything
    assert host.reported(NoticeKind.GONE) == []


@pytest.mark.parametrize("name", ["app[1].log", "app{1,2}.log"])
async def test_a_path_that_exists_is_that_path_through_rotations_and_restarts(
    make_host: MakeHost, name: str
) -> None:
    host = make_host(name)
    await host.ship()
    assert [notice.text for notice in host.reported(NoticeKind.MISSING)][:1] in (
        ["matches no file yet"],
        ["is not there yet"],
    )
    host.write(name, b"1\n")
    host.write("app1.log", b"another\n")
    assert await host.ship() == b"1\n"

    host.move(name, f"{name}.1")
    assert await host.ship() == b""  # not there for a moment, and not taken for a glob
    host.write(name, b"2\n")
    assert await host.ship() == b"2\n"
    await host.restart_with_saved_positions()
    host.move(name, f"{name}.2")
    assert await host.ship() == b""
    host.write(name, b"3\n")
    assert await host.ship() == b"3\n"


@pytest.mark.parametrize("pattern", ["*.log", "?.log", "{*,x}.log", "**"])
async def test_a_stray_file_with_the_name_of_a_glob_hides_no_other(
    make_host: MakeHost, pattern: str
) -> None:
    host = make_host(pattern)
    make(host, "a.log")
    await host.ship()
    host.write(pattern, b"stray\n")
    await host.ship()

    host.move("a.log", "a.log.1")
    host.write("a.log", b"new\n")

    assert b"new\n" in await host.ship()


async def test_braces_stand_for_alternatives_each_of_which_is_missed(make_host: MakeHost) -> None:
    host = make_host("{a,b}.log", "{x,y}/*.log")
    make(host, "a.log", "c.log", "x/1.log", "y/2.log")

    assert sorted((await host.ship()).split()) == [b"a.log", b"x/1.log", b"y/2.log"]
    assert [n.path.rpartition("/")[2] for n in host.reported(NoticeKind.MISSING)] == ["b.log"]


# where reading of unknown files begins: `--from end`, `--ignore-older`, and restarts


DAY = 86_400 * SECOND


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"unfinished", 0, id="no line is whole"),
        pytest.param(b"one\ntwo\n", 8, id="whole lines"),
        pytest.param(b"one\nunfinished", 4, id="an unfinished last line"),
        pytest.param(b"one\n" + b"x" * 200_000, 4, id="a long one"),
    ],
)
async def test_a_file_is_begun_behind_its_last_newline(
    make_host: MakeHost, content: bytes, offset: int
) -> None:
    host = make_host(from_end=True)
    host.write("app.log", content)
    assert await host.ship() == b""

    host.write("app.log", b"\n")

    assert await host.ship() == content[offset:] + b"\n"
    assert [block.section.span.start for block in host.blocks] == [offset]


@pytest.mark.parametrize("before", [b"old\n", b"old\nhalf", b""])
async def test_a_restart_keeps_the_position_of_a_file_of_which_nothing_was_shipped(
    make_host: MakeHost, before: bytes
) -> None:
    host = make_host(from_end=True)
    host.write("app.log", before)
    await host.ship()

    for _ in range(2):
        await host.restart_with_saved_positions()
        host.write("app.log", b"while it was down\n")
        await host.scan()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"next\n")
    await host.restart_with_saved_positions()

    half = before.rpartition(b"\n")[2]
    assert await host.ship() == half + b"while it was down\n" * 2 + b"next\n"


async def test_an_old_file_is_passed_over_until_it_is_written_to(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", ignore_older=DAY)
    host.write("old.log", b"1\n")
    host.write("new.log", b"2\n")
    host.backdate("old.log", 2 * DAY)

    assert await host.ship() == b"2\n"
    await host.scan()
    assert len(host.reported(NoticeKind.AGED)) == 1

    host.write("old.log", b"3\n")
    assert await host.ship() == b"1\n3\n"

    host.write("new.log", b"4\n")
    host.backdate("new.log", 2 * DAY)
    await host.restart_with_saved_positions()
    assert await host.ship() == b"4\n"  # one that we know is never too old
