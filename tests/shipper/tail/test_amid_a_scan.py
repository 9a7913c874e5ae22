"""Rotations between any two system calls of a look: files that do not belong together are not judged together."""

import gzip
import os
from pathlib import Path

import pytest

from tests.shipper.host import SECOND, Host
from tests.shipper.seams import amid

SEAMS = 30
"""More than a look at these files makes calls: the last ones are rotations behind it."""


@pytest.mark.parametrize("read", [b"", b"1\n"], ids=["unread", "read"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
async def test_a_file_truncated_amid_the_look_that_shows_its_copy_is_read_once(
    tmp_path: Path, packed: bool, read: bytes
) -> None:
    for seam in range(SEAMS):
        host = Host(tmp_path / str(seam))
        host.folder.mkdir()
        host.write("app.log", read)
        await host.ship()
        host.write("app.log", b"2\n")
        content = (host.folder / "app.log").read_bytes()
        name = "app.log.1.gz" if packed else "app.log.1"
        host.write(name, gzip.compress(content) if packed else content)
        host.write("app.log", b"in no copy\n")

        def truncate(host: Host = host) -> None:
            os.truncate(host.folder / "app.log", 0)
            host.write("app.log", b"3\n")

        with amid([(seam, truncate)]):
            await host.look()
        for _ in range(4):
            await host.gather()
            host.later += 6 * SECOND
            await host.look()
        await host.follower.close()

        assert host.shipped == read + b"2\n3\n"
