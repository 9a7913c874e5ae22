"""Which files patterns lead to: folders of any depth, what is left out, and folders that come, go and are replaced."""

import os
import socket
from pathlib import Path

import pytest

from shipper.tail.scan import NoticeKind
from tests.shipper.host import Host
from tests.shipper.tail.conftest import MakeHost


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
    await host.follower.wait(0.1)
    while host.follower.look_due:
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

    refused = {n.path.rpartition("/")[2]: n.text for n in host.said(NoticeKind.REFUSED)}
    text = "is a pipe, a socket or a device, not a file"
    assert refused == dict.fromkeys(["pipe", "null", "socket"], text)


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

    shown = {state.path for state in host.follower.states()}
    everything = pattern == "*.log"
    assert shown == {str(tmp_path / "a.log"), *[str(tmp_path / "b.log")] * everything}
    assert host.follower.open_files == len(shown)
    assert await host.ship() == b"b2\n" * everything
    host.write("c.log", b"new\n")
    host.write("d.log", b"later\n")
    assert sorted((await host.ship()).split()) == [b"later", b"new"] * everything
    assert host.said(NoticeKind.GONE) == []
