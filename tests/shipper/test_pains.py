"""What users of other shippers complain about most: a file that is taken for another, and lines that are skipped."""

from pathlib import Path

import pytest

from tests.shipper.host import Host


@pytest.mark.parametrize("size", [5, 23, 24, 25, 5000])
async def test_a_file_on_an_inode_that_was_used_before_is_read_whole(
    tmp_path: Path, size: int
) -> None:
    host = Host(tmp_path)
    host.write("app.log", b"twenty-three and a line\n")
    await host.ship()
    inode = (tmp_path / "app.log").stat().st_ino
    content = (b"another file " * 400)[: size - 1] + b"\n"
    (tmp_path / "app.log").write_bytes(content)  # on the same inode, with nobody looking

    await host.restart()

    assert await host.ship() == content
    assert (tmp_path / "app.log").stat().st_ino == inode
    await host.follower.close()


async def test_lines_that_were_read_and_not_acknowledged_are_read_again_after_a_file_was_closed(
    tmp_path: Path,
) -> None:
    host = Host(tmp_path, "*.log", open_files=1)
    names = ("a", "b", "c")
    for name in names:
        host.write(f"{name}.log", b"1 acknowledged\n")
    await host.ship()
    for name in names:
        host.write(f"{name}.log", b"2 in the pipeline\n")
    await host.look()
    lost = await host.follower.gather(1 << 20)  # files are closed and opened again in turns
    assert len(lost) == 3
    for name in names:
        host.write(f"{name}.log", b"3 written since\n")
    await host.look()
    assert len(await host.follower.gather(1 << 20)) == 3

    await host.restart()
    await host.ship()

    for name in names:
        shipped = [b.lines for b in host.blocks if b.section.path.endswith(f"{name}.log")]
        assert b"".join(shipped) == b"1 acknowledged\n2 in the pipeline\n3 written since\n"
    await host.follower.close()
