"""Deleted while open: read to the end and let go, or let go when that takes too long, and told by name."""

import os
from pathlib import Path

from shipper.notice import NoticeKind
from tests.shipper.following import SECOND, Host


def held(path: Path) -> bool:
    descriptors = Path(f"/proc/{os.getpid()}/fd").iterdir()
    return any(str(path) in str(one.readlink()) for one in descriptors if one.is_symlink())


async def test_a_deleted_file_is_read_to_its_end_and_then_closed(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"2\n")
    (tmp_path / "app.log").unlink()

    assert await host.ship() == b"2\n"
    assert held(tmp_path / "app.log")
    host.later += 6 * SECOND
    await host.ship()

    assert not held(tmp_path / "app.log")
    assert [notice.lost for notice in host.said(NoticeKind.GONE)] == [0]
    await host.follower.close()


async def test_a_deleted_file_that_cannot_be_read_is_let_go_in_time_and_its_loss_is_told(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, hold=3600.0)
    host.write("app.log", b"1\n")
    await host.ship()
    host.write("app.log", b"22\n" * 1000)
    (tmp_path / "app.log").unlink()
    await host.look()

    host.later += 3599 * SECOND
    await host.look()
    assert held(tmp_path / "app.log")
    host.later += 2 * SECOND
    await host.look()

    (notice,) = host.said(NoticeKind.GONE)
    assert not held(tmp_path / "app.log")
    assert (notice.path, notice.lost) == (str(tmp_path / "app.log"), 3000)
    assert "bytes 2 to 3002 were not read" in notice.text
    assert "waited since" in notice.text
    assert await host.gather() == b""
    await host.follower.close()


async def test_a_deleted_file_that_is_written_to_forever_is_let_go_in_time(tmp_path: Path) -> None:
    host = Host(tmp_path, hold=60.0)
    with (tmp_path / "app.log").open("ab", buffering=0) as writer:
        writer.write(b"1\n")
        await host.ship()
        (tmp_path / "app.log").unlink()
        for _ in range(30):
            writer.write(b"x\n")
            host.later += 4 * SECOND
            await host.ship()

    assert 10 <= host.shipped.count(b"x\n") < 20
    assert [notice.lost for notice in host.said(NoticeKind.GONE)] != []
    await host.follower.close()
