"""Files with holes: one that a writer left which kept its offset is skipped, any other is NULs of the content."""

import os
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import Host

LONG = b"".join(b"a line with the number %d\n" % n for n in range(20_000))
lengths = pytest.mark.parametrize("first", [LONG[:4993], LONG], ids=["a page", "many pages"])


@pytest.fixture
def writer(host: Host) -> Iterator[BinaryIO]:
    """Open the log as a writer that keeps its offset, since it does not append."""
    with (host.folder / "app.log").open("wb", buffering=0) as file:
        yield file


def truncate(host: Host) -> None:
    os.truncate(host.folder / "app.log", 0)


@lengths
async def test_a_hole_left_by_a_truncation_that_was_seen_is_skipped(
    host: Host, writer: BinaryIO, first: bytes
) -> None:
    writer.write(first)
    await host.ship()
    truncate(host)
    await host.ship()
    writer.write(b"2\n")

    await host.ship()
    await host.ship()
    writer.write(b"3\n")
    await host.ship()

    length = len(first)
    assert host.shipped == first + b"2\n3\n"
    assert str(host.blocks[-2].section.span) == f"id1:{length}-{length + 2}"
    holes = [notice for notice in host.said(NoticeKind.FOUND) if "hole" in notice.text]
    assert [notice.path for notice in holes] == [str(host.folder / "app.log")]
    assert f"a hole of {length} bytes" in holes[0].text


@lengths
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "down"])
async def test_a_file_regrown_past_the_old_offset_is_read_from_behind_its_hole_every_time(
    host: Host, writer: BinaryIO, restarted: bool, first: bytes
) -> None:
    writer.write(first)
    await host.ship()
    for number in range(2, 6):
        truncate(host)
        writer.write(b"%d\n" % number * number)
        if restarted:
            await host.restart()
        await host.ship()
        await host.ship()

    assert host.shipped == first + b"2\n2\n3\n3\n3\n4\n4\n4\n4\n5\n5\n5\n5\n5\n"


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "down"])
async def test_the_unread_rest_comes_from_a_copy_that_has_the_hole(
    host: Host, writer: BinaryIO, restarted: bool
) -> None:
    writer.write(LONG)
    await host.ship()
    truncate(host)
    writer.write(b"2\n")
    await host.ship()
    await host.ship()
    writer.write(b"3\n")
    host.copy_truncate("app.log", "app.log.1")
    writer.write(b"4\n")
    if restarted:
        await host.restart()

    await host.ship()
    await host.ship()

    assert host.shipped == LONG + b"2\n3\n4\n"


@pytest.mark.parametrize("length", [3, 5000])
async def test_nuls_that_were_written_are_content(
    host: Host, writer: BinaryIO, length: int
) -> None:
    writer.write(bytes(length) + b"1\n")
    assert await host.ship() == bytes(length) + b"1\n"
    truncate(host)
    await host.ship()
    writer.seek(0)
    writer.write(b"\0\n2\n")

    await host.ship()
    await host.ship()

    assert host.shipped.endswith(b"1\n\0\n2\n")
