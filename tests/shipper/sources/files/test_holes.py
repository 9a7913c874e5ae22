"""Sparse and preallocated files: NULs that nobody wrote are no lines, written ones are shipped."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from shipper.sources.files.paths import Compression
from shipper.sources.notices import NoticeKind
from tests.shipper.host import SECOND, Host, pack
from tests.shipper.sources.files.conftest import MakeHost

MIB = 1024 * 1024


def covered(host: Host) -> list[tuple[int, int]]:
    """Return the spans that were shipped, of one file."""
    assert len({block.section.span.file_id for block in host.blocks}) == 1
    return [(block.section.span.start, block.section.span.end) for block in host.blocks]


def is_without_gap(host: Host) -> bool:
    spans = covered(host)
    return all(before[1] == behind[0] for before, behind in pairwise(spans))


def write_at(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def allocate(path: Path, size: int, how: str) -> None:
    """Make a file of a size without content: with space on the disk, without, or by zeros."""
    with path.open("wb") as file:
        if how == "fallocate":
            os.posix_fallocate(file.fileno(), 0, size)
        elif how == "truncate":
            file.truncate(size)
        else:
            file.write(bytes(size))


async def test_lines_behind_many_written_nuls_are_shipped(host: Host) -> None:
    log = host.folder / "app.log"
    log.write_bytes(b"1\n" + bytes(40 * MIB) + b"2\n")

    assert (await host.ship()).replace(b"\0", b"") == b"1\n2\n"
    host.write("app.log", b"3\n")
    assert await host.ship() == b"3\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("how", ["fallocate", "truncate", "zeros"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_lines_written_into_a_preallocated_file_are_shipped_as_they_come(
    host: Host, how: str, encoding: str, *, restarts: bool
) -> None:
    log, written = host.folder / "app.log", b""
    allocate(log, 2 * MIB, how)
    await host.ship()
    for number in range(20):
        text = f"line {number}{'x' * 90 * number}\nunfinished ".encode(encoding)
        write_at(log, len(written), text)
        written += text
        await host.ship()
        if restarts and number % 5 == 0:
            await host.restart_with_saved_positions()

    last = written.rfind(b"\n") + 1
    assert host.shipped == written[:last]
    assert [state.end - state.position for state in host.follower.files()] == [len(written) - last]
    host.move("app.log", "app.log.1")
    await host.ship_out()
    assert host.shipped == written
    assert is_without_gap(host)
    assert host.reported(NoticeKind.TRUNCATED) == []
    assert not [one for one in host.reported(NoticeKind.CONTENT) if "at its end" not in one.text]


async def test_a_preallocated_file_is_read_to_its_last_line_whatever_becomes_of_it(
    host: Host,
) -> None:
    log = host.folder / "app.log"
    allocate(log, MIB, "fallocate")
    write_at(log, 0, b"1\n")
    await host.ship()
    os.truncate(log, 2)  # as its writer does that closes it
    await host.ship()
    host.write("app.log", b"2\n")
    await host.ship()
    log.unlink()
    for _ in range(3):
        host.later += 6 * SECOND
        await host.ship()

    assert host.shipped == b"1\n2\n"
    assert [one.lost for one in host.reported(NoticeKind.GONE)] == [0]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
async def test_the_nuls_of_a_preallocated_file_are_no_lines_of_its_compressed_form(
    make_host: MakeHost, ending: str
) -> None:
    host = make_host()
    log = host.folder / "app.log"
    allocate(log, 3 * MIB, "truncate")
    write_at(log, 0, b"1\n")
    await host.ship()
    write_at(log, 2, b"2\nunfinished")
    host.move("app.log", "app.log.1")
    await host.restart_with_saved_positions()
    pack(host.folder / "app.log.1", {".gz": Compression.GZIP, ".zst": Compression.ZSTD}[ending])
    await host.ship_out()

    assert host.shipped == b"1\n2\nunfinished"


@pytest.mark.parametrize("begin", [b"", b"before\n", b"before\nunfinished ", b"x" * 6000 + b"\n"])
async def test_a_hole_is_passed_at_once_and_named(make_host: MakeHost, begin: bytes) -> None:
    host = make_host("*.log")
    size = 20 * 1024 * MIB + 17
    host.write("app.log", begin)
    os.truncate(host.folder / "app.log", size)
    host.write("app.log", b"after\nand more\n")
    host.write("other.log", b"other\n")

    shipped = await host.ship()
    await host.scan()

    assert shipped.replace(b"other\n", b"") == begin + b"after\nand more\n"
    (notice,) = host.reported(NoticeKind.CONTENT)
    assert f"{size - len(begin)} bytes" in notice.text
    host.blocks = [one for one in host.blocks if one.section.path.endswith("app.log")]
    assert covered(host)[-1][1] == size + 15
    assert is_without_gap(host)
    assert {cursor.offset for cursor in host.cursors()} == {size + 15}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_sparse_file_is_the_same_one_after_a_rotation_and_a_restart(
    host: Host, *, restarts: bool
) -> None:
    """So writes a program that does not append, after a rotation by copytruncate."""
    os.truncate(host.folder / "app.log", 0) if (host.folder / "app.log").exists() else None
    host.write("app.log", b"")
    os.truncate(host.folder / "app.log", 3 * MIB)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    host.move("app.log", "app.log.1")
    host.write("app.log", b"3\n")
    if restarts:
        await host.restart_with_saved_positions()
    await host.ship_out()

    assert host.shipped == b"1\n2\n3\n"


async def test_nuls_that_were_written_are_shipped_byte_for_byte(make_host: MakeHost) -> None:
    host = make_host(block_size=64 * 1024, max_line=100_000)
    content = b"a\0b\n" + b"\0" * 5000 + b"\n" + b"x\0\0\0\0" * 30_000 + b"\n" + b"\0" * 300_000
    content += b"end\n\0\0"
    host.write("app.log", content)

    await host.ship()
    host.move("app.log", "app.log.1")
    await host.ship_out()

    assert host.shipped == content
    assert host.reported(NoticeKind.CONTENT) == []


async def test_reading_from_the_end_begins_behind_the_last_line_of_a_preallocated_file(
    make_host: MakeHost,
) -> None:
    host = make_host(from_end=True)
    allocate(host.folder / "app.log", 40 * MIB, "fallocate")
    write_at(host.folder / "app.log", 0, b"1\n2\n")
    assert await host.ship() == b""
    write_at(host.folder / "app.log", 4, b"3\n")

    assert await host.ship() == b"3\n"
