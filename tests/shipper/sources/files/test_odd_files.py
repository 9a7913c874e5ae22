"""Odd files: links, pipes, files of the kernel, closed, deleted, or more than descriptors."""

import asyncio
import os
import random
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from shipper.sources.files.listing import Listing
from shipper.sources.files.paths import Selection
from shipper.sources.notices import NoticeKind
from tests.descriptors import held_by
from tests.shipper.conftest import NOBODY, as_user
from tests.shipper.host import SECOND, Host
from tests.shipper.sources.files.conftest import MakeHost


@pytest.fixture
def host(make_host: MakeHost) -> Host:
    return make_host("current.log", "app-*.log")


async def test_a_link_and_its_target_that_are_both_matched_are_followed_once(host: Host) -> None:
    host.write("app-1.log", b"1\n")
    host.switch("current.log", "app-1.log")

    assert await host.ship() == b"1\n"
    host.switch("current.log", "app-2.log")
    host.write("app-1.log", b"2\n")
    host.write("app-2.log", b"3\n")
    assert sorted((await host.ship()).split()) == [b"2", b"3"]
    assert len(host.follower.files()) == 2


async def test_a_switched_link_is_read_like_a_rotation_the_old_target_first(
    make_host: MakeHost,
) -> None:
    host = make_host("current.log")
    for number in range(4):
        host.write(f"app-{number}", b"%d first\n" % number)
        host.switch("current.log", f"app-{number}")
        await host.ship()
        host.write(f"app-{number}", b"%d last\n" % number)

    await host.ship()

    assert host.shipped.splitlines() == [
        line for n in range(4) for line in (b"%d first" % n, b"%d last" % n)
    ]
    assert host.reported(NoticeKind.TRUNCATED) == []


async def test_a_hard_link_is_no_second_file_even_when_the_first_name_goes(host: Host) -> None:
    host.write("app-1.log", b"1\n")
    (host.folder / "app-2.log").hardlink_to(host.folder / "app-1.log")
    await host.ship()
    (host.folder / "app-1.log").unlink()
    host.write("app-2.log", b"2\n")
    await host.ship()
    await host.restart_with_saved_positions()
    host.write("app-2.log", b"3\n")
    await host.ship()

    assert host.shipped == b"1\n2\n3\n"


@contextmanager
def closed(file: Path, folder: Path) -> Iterator[None]:
    """Let nobody read them meanwhile."""
    file.chmod(0)
    folder.chmod(0)
    yield
    file.chmod(0o600)
    folder.chmod(0o700)


async def test_permissions_may_be_taken_and_given_back() -> None:
    with tempfile.TemporaryDirectory() as name:
        (tmp := Path(name)).chmod(0o777)
        host, log, folder = Host(tmp, "app.log", "*/*.log"), tmp / "app.log", tmp / "folder"
        with as_user(NOBODY):
            folder.mkdir()
            host.write("app.log", b"1\n")
            host.write("folder/a.log", b"a1\n")
            with closed(log, folder):
                assert await host.ship() == await host.ship() == b""
            paths = sorted(notice.path for notice in host.reported(NoticeKind.UNREADABLE))
            assert paths == [str(log), str(folder)]
            assert sorted((await host.ship()).split()) == [b"1", b"a1"]

            host.write("app.log", b"2\n")
            host.write("folder/a.log", b"a2\n")
            with closed(log, folder):
                taken = await host.ship()
            taken += await host.ship()
            assert sorted(taken.split()) == [b"2", b"a2"]  # each once, whether it was open or not
            assert len({state.file for state in host.follower.files()}) == 2
        await host.follower.close()


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        pytest.param("/sys/devices/system/cpu", "online", id="a file"),
        pytest.param("/proc", "*/status", id="a file of each process"),
        pytest.param("/proc/self", "**", id="a tree"),
    ],
)
async def test_files_of_the_kernel_are_refused_in_one_sentence(folder: str, pattern: str) -> None:
    host = Host(Path(folder), pattern)
    assert await host.ship() == b""
    assert [one.path for one in host.notices] == [f"{folder}/{pattern}"]
    assert [one.kind for one in host.notices] == [NoticeKind.REFUSED]
    await host.follower.close()


async def test_a_file_behind_proc_and_one_next_to_a_link_to_it_are_followed(
    make_host: MakeHost, tmp_path: Path
) -> None:
    (tmp_path / "kernel").symlink_to("/proc/self")
    (tmp_path / "limits.log").symlink_to("/proc/self/limits")
    host = make_host("**/*", "*/limits", f"/proc/self/root{tmp_path}/app.*")
    host.write("app.log", b"1\n")
    host.write("other.log", b"2\n")

    assert sorted((await host.ship()).split()) == [b"1", b"2"]


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Return the uppermost of 1,000 folders named a, each in the one before."""
    top = tmp_path / "a"
    subprocess.run(["mkdir", "-p", tmp_path / ("a/" * 1000)], check=True)
    yield top
    subprocess.run(["rm", "-r", top], check=True)  # too deep for shutil.rmtree


async def test_folders_deeper_than_the_stack_of_python_are_listed(
    make_host: MakeHost, deep: Path
) -> None:
    host = make_host("**/*.log")
    host.write("a/" * 1000 + "app.log", b"deep\n")
    host.write("app.log", b"top\n")

    assert sorted((await host.ship()).split()) == [b"deep", b"top"]


async def test_links_to_folders_deep_within_the_targets_of_other_links_are_followed(
    make_host: MakeHost, deep: Path
) -> None:
    way = deep
    for number in range(10):
        link = deep.parent / f"link{number}"
        link.symlink_to(way / ("a/" * 80))
        way = link
    host = make_host("link9/*.log")
    host.write("a/" * 801 + "app.log", b"1\n")

    assert await host.ship() == b"1\n"
    assert [file.path for file in host.follower.files()] == [str(way / "app.log")]


@pytest.mark.parametrize("start", ["", "absolute"])
async def test_a_chain_of_more_links_than_the_kernel_follows_leads_nowhere(
    make_host: MakeHost, tmp_path: Path, start: str
) -> None:
    folder = tmp_path if start else Path()
    for number in range(1200):
        (tmp_path / f"{number:04}.log").symlink_to(folder / f"{number + 1:04}.log")
    host = make_host("*.log")
    host.write("app.log", b"1\n")
    host.write("1200.log", b"2\n")

    assert sorted((await host.ship()).split()) == [b"1", b"2"]
    host.write("0000.log.1", b"3\n")
    assert await host.ship() == b"3\n"


def test_a_link_is_found_to_lead_where_the_kernel_says(tmp_path: Path) -> None:
    chance, names = random.Random(3), ["a", "b", "c", "d"]
    paths = [tmp_path / one / other for one in names for other in [*names, "e"]]
    for folder in names:
        (tmp_path / folder).mkdir()
    for path in paths:
        way = "/".join(chance.choices([*names, "..", ".", "e"], k=chance.randint(1, 5)))
        path.symlink_to(chance.choice(["", f"{tmp_path}/", f"{tmp_path}//a/../"]) + way)
    ways = [f"{path}/{rest}".rstrip("/") for path in paths for rest in ["", "a", "b/c"]]
    followed = [way for way in ways if os.path.exists(way)]  # noqa: PTH110 - as it is

    listing = Listing(Selection.of([]))

    assert len(followed) > len(paths) // 2
    assert {way: listing.find_real(way) for way in followed} == {
        way: os.path.realpath(way) for way in followed
    }


class Untyped:
    """An entry whose type only its file could say, and its folder does not let us ask for it."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self.name, self.inode = entry.name, entry.inode

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        raise PermissionError(13, "Permission denied", self.name)

    def is_symlink(self) -> bool:
        raise PermissionError(13, "Permission denied", self.name)


async def test_a_name_whose_type_cannot_be_found_costs_no_other_file(
    make_host: MakeHost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scandir = os.scandir

    @contextmanager
    def list_untyped(folder: str) -> Iterator[list[os.DirEntry[str] | Untyped]]:
        with scandir(folder) as entries:
            yield [Untyped(one) if one.name == "closed.log" else one for one in entries]

    monkeypatch.setattr(os, "scandir", list_untyped)
    host = make_host("*/*.log")
    for name in ("x/closed.log", "x/link.log", "y/open.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        host.write(name, f"{name}\n".encode())

    assert sorted((await host.ship()).split()) == [b"x/closed.log", b"x/link.log", b"y/open.log"]
    assert host.reported(NoticeKind.UNREADABLE) == []


async def test_a_moment_without_descriptors_costs_no_deleted_file(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", open_files=40)
    names = [f"{number}.log" for number in range(30)]
    for name in names:
        host.write(name, b"line\n")
    await host.ship()
    assert host.follower.open_files == 30
    for name in names[:20]:
        host.write(name, b"rest\n")
        (tmp_path / name).unlink()
    await host.scan()
    for name in ("x.log", "y.log", "z.log"):
        host.write(name, b"new\n")

    with few_descriptors():
        await host.scan()
    await host.ship()
    for number in range(30, 80):
        host.write(f"{number}.log", b"later\n")
    await host.ship()

    counts = [host.shipped.count(word) for word in (b"rest\n", b"new\n", b"later\n")]
    assert counts == [20, 3, 50]
    assert host.follower.open_files == 40  # as many as it may


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Leave this process one free descriptor: enough to list a folder, not to open two files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# deleted while open: read to the end and closed in time; and read again from the stored position


def held(path: Path) -> bool:
    return any(str(path) in one for one in held_by(os.getpid()))


async def test_a_deleted_file_is_read_to_its_end_and_then_closed(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host()
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    (tmp_path / "app.log").unlink()

    assert await host.ship() == b"2\n"
    assert held(tmp_path / "app.log")
    for _ in range(3):  # a late event of its last write costs another scan
        host.later += 6 * SECOND
        await host.ship()

    assert not held(tmp_path / "app.log")
    assert [notice.lost for notice in host.reported(NoticeKind.GONE)] == [0]


async def test_a_deleted_file_that_cannot_be_read_is_closed_in_time_and_its_loss_is_reported(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host(hold=3600.0)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"22\n" * 1000)
    (tmp_path / "app.log").unlink()
    await host.scan()

    host.later += 3590 * SECOND
    await host.scan()
    assert held(tmp_path / "app.log")
    host.later += 20 * SECOND
    await host.scan()

    (notice,) = host.reported(NoticeKind.GONE)
    assert not held(tmp_path / "app.log")
    assert (notice.path, notice.lost) == (str(tmp_path / "app.log"), 3000)
    assert "bytes 2 to 3002 were not read" in notice.text
    assert await host.gather() == b""


async def test_a_file_that_another_agent_shipped_is_read_on_behind_it(make_host: MakeHost) -> None:
    host = make_host()
    host.write("app.log", b"one\n")
    await host.ship()
    (cursor,) = host.cursors()

    host.write("app.log", b"two\n")
    await host.follower.rewind({"other": replace(cursor, file="other")})

    assert await host.ship() == b"two\n"
    assert host.blocks[-1].section.span.file_id == "other"


async def test_a_cancelled_gathering_does_no_harm_and_files_remain_open(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", block_size=1000)
    expected = b"".join(b"%d %s\n" % (n, b"x" * 200) for n in range(20_000))
    host.write("app.log", expected)
    await host.scan()
    (tmp_path / "app.log").unlink()
    for _ in range(20):
        reading = asyncio.create_task(host.follower.gather(1 << 22))
        await asyncio.sleep(random.uniform(0, 0.01))
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        await host.follower.rewind(host.positions.files)

    assert sum("app.log" in one for one in held_by(os.getpid())) == 1
    assert await host.ship() == expected
