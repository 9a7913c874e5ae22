"""Compressed rotated files: their unread rest is shipped, nothing twice, the oldest first."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shipper.sources.files import sampling
from shipper.sources.files.paths import Compression
from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host, packed
from tests.shipper.sources.files.conftest import MakeHost

forms = pytest.mark.parametrize(
    "compression", Compression, ids=lambda compression: compression.name.lower()
)
LONG = b"".join(b"a line with the number %d\n" % n for n in range(60_000))


def spans(host: Host) -> list[str]:
    return [str(block.section.span) for block in host.blocks]


@forms
@pytest.mark.parametrize("read", [b"1\n", b"a line of a usual length, %d\n" % 1 * 90], ids=len)
@pytest.mark.parametrize("name", ["app.log.1", "app-20260101.log", "app.log"])
async def test_the_rest_of_a_file_compressed_while_the_agent_was_down_comes_before_its_successor(
    host: Host, name: str, read: bytes, compression: Compression
) -> None:
    host.write("app.log", read)
    await host.ship()
    host.write("app.log", b"2\n")
    if name != "app.log":
        host.move("app.log", name)
    path = host.pack(name, compression)
    host.write("app.log", b"3\n")
    await host.restart()

    await host.ship()
    await host.ship()

    assert host.shipped == read + b"2\n3\n"
    length = len(read)
    assert spans(host) == [f"id0:0-{length}", f"id0:{length}-{length + 2}", "id1:0-2"]
    assert host.blocks[1].section.identity is not None
    assert host.blocks[1].section.identity.inode == path.stat().st_ino


@forms
async def test_a_file_compressed_when_another_group_gets_its_inode_is_not_shipped_again(
    make_host: MakeHost, compression: Compression
) -> None:
    host = make_host("app.log", "other.log")
    lines = b"a line of a usual length\n" * 50
    host.write("app.log", lines)
    await host.ship()
    host.write("app.log.1", lines)
    (host.folder / "app.log").write_bytes(b"")
    await host.ship()
    host.later += 60 * SECOND
    await host.ship()
    copy = host.folder / "app.log.1"
    (host.folder / f"app.log.1{compression.value}").write_bytes(
        packed(copy.read_bytes(), compression)
    )
    host.move("app.log.1", "other.log")  # as good as a file that was made with its inode
    (host.folder / "other.log").write_bytes(b"another file\n")
    await host.ship_out()

    assert host.shipped == lines + b"another file\n"


async def down_while_spoilt(
    host: Host, compression: Compression, spoil: Callable[[bytes], bytes]
) -> Path:
    """Ship a line, compress and spoil the next ones while the agent is down, and start it."""
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", LONG)
    host.move("app.log", "app.log.1")
    path = host.pack("app.log.1", compression)
    path.write_bytes(spoil(path.read_bytes()))
    host.write("app.log", b"3\n")
    await host.restart()
    return path


async def test_whole_lines_of_a_damaged_file_are_shipped_and_the_loss_is_reported_once(
    host: Host,
) -> None:
    def spoil(data: bytes) -> bytes:
        return data[: len(data) // 2] + b"\xff" * 300 + data[len(data) // 2 + 300 :]

    path = await down_while_spoilt(host, Compression.GZIP, spoil)
    await host.ship_out()

    (notice,) = host.reported(NoticeKind.DAMAGED)
    before = host.shipped.removesuffix(b"3\n")
    assert (b"1\n" + LONG).startswith(before)
    assert len(before) > len(LONG) // 4
    assert before.endswith(b"\n")
    assert host.shipped.endswith(b"3\n")
    assert notice.path == str(path)
    assert f"behind byte {len(before)} " in notice.text
    assert notice.lost > 0


async def test_a_file_that_is_damaged_from_its_first_byte_on_is_reported_as_lost(
    host: Host,
) -> None:
    path = await down_while_spoilt(host, Compression.GZIP, lambda data: b"\xff" * len(data))
    await host.ship_out()

    assert [notice.path for notice in host.reported(NoticeKind.DAMAGED)] == [str(path)]
    assert host.shipped == b"1\n3\n"


@forms
async def test_a_file_that_ends_too_early_is_waited_for_and_then_reported(
    host: Host, compression: Compression
) -> None:
    await down_while_spoilt(host, compression, lambda data: data[:-3])
    await host.ship()
    assert not host.shipped.endswith(b"3\n")
    assert not host.reported(NoticeKind.DAMAGED)

    host.later += 6 * SECOND
    await host.ship()
    await host.scan()

    assert len(host.reported(NoticeKind.DAMAGED)) == 1
    assert host.shipped.endswith(b"\n3\n")


@pytest.mark.parametrize("was_down", [False, True])
async def test_an_idle_compressed_file_is_not_opened_again(host: Host, *, was_down: bool) -> None:
    host.write("app.log", LONG)
    await host.ship()
    host.move("app.log", "app.log.1")
    read_to_its_end = host.pack("app.log.1")  # its original is held open, unless the agent was down
    host.write("app.log", b"2\n")
    if was_down:
        await host.restart()
    await host.ship()
    old = host.folder / "app.log.2.gz"
    old.write_bytes(gzip.compress(b"old\n"))
    os.utime(old, ns=(SECOND, SECOND))
    await host.ship()
    times = [SECOND, SECOND]
    for path in (read_to_its_end, old):
        os.utime(path, ns=(times[0], path.stat().st_mtime_ns))

    for number in range(3):
        host.write("app.log", b"%d\n" % number)
        await host.ship()

    assert [path.stat().st_atime_ns for path in (read_to_its_end, old)] == times


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("begun", [30, 100, 300])
async def test_a_few_bytes_of_a_compressed_file_do_not_show_what_it_is(
    host: Host, begun: int, *, restarts: bool
) -> None:
    first = b"".join(b"%d %x\n" % (n, n * 7919 % 65536) for n in range(2000))
    host.write("app.log", first)
    await host.ship()
    if restarts:
        await host.follower.close()
    host.write("app.log", b"second\n")
    data = gzip.compress((host.folder / "app.log").read_bytes())
    (host.folder / "app.log").unlink()
    (host.folder / "app.log.1.gz").write_bytes(data[:begun])
    host.write("app.log", b"third\n")
    if restarts:
        await host.restart_with_saved_positions()
    for part in (data[begun:500], data[500:5000], data[5000:]):
        await host.ship_out()
        host.write("app.log.1.gz", part)
    await host.ship_out()

    assert sorted(host.shipped.splitlines()) == sorted((first + b"second\nthird\n").splitlines())


async def test_no_more_is_expected_of_a_compressed_file_than_it_holds(host: Host) -> None:
    content = b"".join(b"%s\n" % os.urandom(40).hex().encode() for _ in range(200))
    for read in range(1, len(content), 997):
        host.write(f"{read}.log", content[:read])
    await host.retarget("*.log")
    await host.ship()
    for read in range(1, len(content), 997):
        (host.folder / f"{read}.log").write_bytes(content)
        host.pack(f"{read}.log")
    await host.restart_with_saved_positions()

    await host.scan()

    assert {one.end for one in host.follower.files() if one.path.endswith(".gz")} <= {
        *range(len(content) + 1)
    }


@pytest.mark.parametrize("size", [80, 3000])
async def test_a_copy_that_has_the_inode_of_a_compressed_file_is_not_shipped_again(
    host: Host, size: int
) -> None:
    host.write("app.log", b"a" * 80 + b"\n")
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"b" * size + b"\n")
    await host.ship()
    host.pack("app.log.1")
    for _ in range(2):
        await host.ship_out()
    shipped = host.shipped
    # as if the inode of the deleted archive was given to the copy
    host.move("app.log.1.gz", "app.log.1")
    (host.folder / "app.log.1").write_bytes((host.folder / "app.log").read_bytes())
    await host.ship()
    (host.folder / "app.log").write_bytes(b"")
    await host.ship()
    host.write("app.log", b"c\n")
    await host.ship_out()

    assert host.shipped == shipped + b"c\n"
    assert shipped == b"a" * 80 + b"\n" + b"b" * size + b"\n"


@pytest.mark.parametrize("compression", [Compression.BZIP2, Compression.GZIP])
async def test_archives_of_a_file_that_is_rotated_often_are_not_compared_with_all_others(
    host: Host, compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, opened = 12, list[int]()

    class Counted(sampling.Decompressor):
        def __init__(self, descriptor: int, compression: Compression) -> None:
            opened.append(descriptor)
            super().__init__(descriptor, compression)

    monkeypatch.setattr(sampling, "Decompressor", Counted)
    wanted = b""
    for number in range(many):
        wanted += (line := b"the generation %d of many lines\n" % number * 99)
        host.write("app.log", line)
        await host.ship()
        host.move("app.log", f"app.log-202601{number + 10}")
    await host.ship()

    for number in range(many):
        host.pack(f"app.log-202601{number + 10}", compression)
    await host.ship_out()

    assert host.shipped == wanted
    assert many <= len(opened) <= 5 * many
