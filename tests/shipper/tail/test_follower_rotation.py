"""Files that are renamed, deleted or moved away while they are followed, or while nobody looks."""

import gzip
import os
from pathlib import Path

import pytest

from shipper.tail.notices import NoticeKind
from tests.shipper.host import SECOND
from tests.shipper.tail.conftest import MakeHost


@pytest.mark.parametrize("name", ["other.log", "app.log.1.gz"])
async def test_an_empty_file_is_not_taken_for_another_one_that_got_its_inode(
    tmp_path: Path, make_host: MakeHost, name: str
) -> None:
    host = make_host("*.log")
    host.write("app.log", b"one line\n" * 9)
    await host.ship()
    host.move("app.log", "app.log.1")
    host.write("app.log", b"")
    await host.ship()
    await host.follower.close()
    data = gzip.compress((tmp_path / "app.log.1").read_bytes())
    (tmp_path / "app.log.1").unlink()
    (tmp_path / "app.log").write_bytes(data if name.endswith(".gz") else b"other\n")
    host.move("app.log", name)  # as good as a file that was made when the empty one was gone

    await host.restart_with_saved_positions()
    shipped = await host.ship()

    labels = [block.section.path for block in host.blocks[1:]]
    expected = [] if name.endswith(".gz") else [str(tmp_path / name)]
    assert labels == expected
    assert shipped == b"other\n" * len(expected)


async def test_siblings_that_a_glob_shows_are_shipped_oldest_first(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("app.log*")
    for number, name in enumerate(["app.log.2", "app.log.1", "app.log"]):
        host.write(name, b"%d\n" % number)
        os.utime(tmp_path / name, ns=(number * SECOND, number * SECOND))
    host.write("app.log.3.lz4", b"\x04\x22")

    assert await host.ship() == b"0\n1\n2\n"
    assert [notice.path for notice in host.said(NoticeKind.REFUSED)] == [
        str(tmp_path / "app.log.3.lz4")
    ]
