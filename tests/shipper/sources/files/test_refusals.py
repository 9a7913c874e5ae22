"""Folders that our own programs write to: followed only by a pattern that names them."""

from pathlib import Path

import pytest

from receiver.consume.marked_folders import mark_folder
from shipper.sources.notices import NoticeKind
from tests.shipper.host import Host
from tests.shipper.sources.files.conftest import MakeHost


@pytest.fixture(params=[".folder-id", "logbroker.lock"])
def received(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a marked folder with a file and a subfolder with a file, next to a log."""
    folder = tmp_path / "srv/received"
    (folder / "web01").mkdir(parents=True)
    (folder / request.param).touch()
    (folder / "web01.log").write_bytes(b"again\n")
    (folder / "web01/app.log").write_bytes(b"again\n")
    (tmp_path / "srv/app.log").write_bytes(b"once\n")
    return folder


@pytest.mark.parametrize("pattern", ["**/*.log", "srv/*/*.log", "*/received/*.log", "srv/**"])
async def test_a_pattern_from_outside_never_enters_a_folder_that_is_received_to(
    make_host: MakeHost, received: Path, pattern: str
) -> None:
    host = make_host(pattern, "srv/app.log")

    assert await host.ship() == b"once\n"
    await host.scan()
    assert [one.path for one in host.reported(NoticeKind.REFUSED)] == [str(received)]
    assert "name the folder in --file" in host.reported(NoticeKind.REFUSED)[0].text


@pytest.mark.parametrize("target", ["received", "received/web01", "received/web01.log"])
async def test_a_link_is_no_way_in(make_host: MakeHost, received: Path, target: str) -> None:
    (received.parent / "link").symlink_to(target)
    host = make_host("srv/*/*.log", "srv/*", "srv/**/*.log")

    assert await host.ship() == b"once\n"


@pytest.mark.parametrize(
    "pattern", ["srv/received/*.log", "srv/received/web01.log", "link/*.log", "log", "way/r*/*.log"]
)
async def test_a_folder_that_a_pattern_names_is_followed(
    make_host: MakeHost, received: Path, pattern: str
) -> None:
    top = received.parent.parent
    (top / "link").symlink_to(received)
    (top / "log").symlink_to(received / "web01.log")
    (top / "way").symlink_to(received.parent)
    host = make_host(pattern)
    shipped = await host.ship()

    assert shipped == (b"" if pattern.startswith("way") else b"again\n")


async def test_one_pattern_that_names_a_folder_opens_it_to_no_other(
    make_host: MakeHost, received: Path
) -> None:
    host = make_host("**/*.log", "srv/received/web01.log")

    await host.ship()

    assert sorted(Path(one.path).name for one in host.follower.files()) == ["app.log", "web01.log"]
    assert not any("web01/" in one.path for one in host.follower.files())


async def test_a_folder_that_is_received_to_from_now_on_is_let_go(
    make_host: MakeHost, tmp_path: Path
) -> None:
    (tmp_path / "out/web01").mkdir(parents=True)
    host = make_host("**/*.log")
    for name in ("app.log", "out/web01.log", "out/web01/sys.log"):
        host.write(name, f"{name}\n".encode())
    await host.ship()
    (tmp_path / "out/.folder-id").touch()
    await host.scan()
    for name in ("app.log", "out/web01.log", "out/web01/sys.log"):
        host.write(name, b"more\n")

    assert await host.ship() == b"more\n"
    assert [one.path for one in host.follower.files()] == [str(tmp_path / "app.log")]
    host.move("out/web01.log", "out/web01.log.1")
    host.move("out/web01/sys.log", "out/web01/sys.log.1")
    assert await host.ship() == b""


async def test_what_is_written_for_a_receiver_is_a_mark(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    mark_folder(tmp_path / "out")
    host = Host(tmp_path, "**/*.log")
    host.write("out/web01.log", b"again\n")

    assert await host.ship() == b""
    await host.follower.close()
