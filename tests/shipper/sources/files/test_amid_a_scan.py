"""Rotations between any two system calls of a scan: nothing is decided on a mixture of files."""

import gzip
import os
from functools import partial
from pathlib import Path

import pytest

from tests.shipper.host import SECOND, Host
from tests.shipper.seams import amid

SEAMS = 30
"""More than the calls of a scan of these files: the last rotations come behind it."""


async def ship_out(host: Host) -> None:
    for _ in range(4):
        await host.gather()
        host.later += 6 * SECOND
        await host.scan()
    await host.follower.close()


def copied(host: Host, *, packed: bool = False) -> None:
    content = (host.folder / "app.log").read_bytes()
    if packed:
        host.write("app.log.1.gz", gzip.compress(content))
    else:
        host.write("app.log.1", content)


@pytest.mark.parametrize("read", [b"", b"1\n"], ids=["unread", "read"])
@pytest.mark.parametrize("way", ["rename", "copy", "truncate", "truncate what was compressed"])
async def test_a_file_rotated_amid_a_scan_is_read_once_and_before_its_successor(
    tmp_path: Path, way: str, read: bytes
) -> None:
    for seam in range(SEAMS):
        host = Host(tmp_path / str(seam))
        host.folder.mkdir()
        host.write("app.log", read)
        await host.ship()
        host.write("app.log", b"2\n")
        if way.startswith("truncate"):
            copied(host, packed=way != "truncate")
            host.write("app.log", b"in no copy\n")

        def rotate(host: Host = host) -> None:
            if way == "rename":
                host.move("app.log", "app.log.1")
            else:
                if way == "copy":
                    copied(host)
                os.truncate(host.folder / "app.log", 0)
            host.write("app.log", b"3\n")

        with amid([(seam, rotate)]):
            await host.scan()
        await ship_out(host)

        assert host.shipped == read + b"2\n3\n"


async def test_a_file_that_appears_amid_the_scan_is_not_known_by_its_link(tmp_path: Path) -> None:
    for seam in range(SEAMS):
        host = Host(tmp_path / str(seam), "*.log")
        host.folder.mkdir()
        (host.folder / "app-latest.log").symlink_to("app.log")
        host.write("app.log", b"1\n")
        await host.ship()
        host.move("app.log", "app.log.2")

        with amid([(seam, partial(host.write, "app.log", b"2\n"))]):
            await host.scan()
        await host.ship()
        host.move("app.log", "app.log.1")
        host.pack("app.log.1")
        host.write("app.log", b"3\n")
        await host.restart()
        await ship_out(host)

        assert host.shipped == b"1\n2\n3\n"


@pytest.mark.parametrize("to", ["short.log.1", "elsewhere"], ids=["rotated", "gone"])
async def test_a_file_that_left_amid_the_first_scan_has_no_other_begun_at_its_end(
    tmp_path: Path, to: str
) -> None:
    for seam in range(SEAMS):
        host = Host(tmp_path / str(seam), "*.log", from_end=True)
        host.folder.mkdir()
        for name in ("app.log", "short.log"):
            host.write(name, b"before\n")
        with amid([(seam, partial(host.move, "short.log", to))]):
            await host.scan()

        host.write("new.log", b"1\n")
        await ship_out(host)

        assert host.shipped == b"1\n"
