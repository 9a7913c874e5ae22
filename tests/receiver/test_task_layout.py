"""A task and the paths of its files: folders, days, modes, hostile names, other layouts, few descriptors."""

import os
from dataclasses import replace

import pytest

from receiver.consume.assignment import Cause
from receiver.storage.layout import Permissions
from tests.receiver.partition import Partition, blocked, ours

pytestmark = pytest.mark.nats


@pytest.fixture
def partition(partition: Partition) -> Partition:
    return replace(partition, template="{host}/{file}")


def test_a_path_may_be_a_file_first_and_a_folder_later_and_the_other_way_round(
    partition: Partition,
) -> None:
    partition.publish(
        ours("web01", "a", 0, b"1\n"),
        ours("web01", "a/x", 0, b"2\n"),
        ours("web01", "b/x", 0, b"3\n"),
        ours("web01", "b", 0, b"4\n"),
        ("logs.p0.web02", b"nobody says of what file", None),
    )
    first = partition.receive()
    partition.publish(ours("web01", "b", 2, b"5\n"), ours("web01", "a/x", 2, b"6\n"))

    partition.receive(first.until)

    assert partition.files() == {
        "web01/var/log/a": b"1\n",
        "web01/var/log/a..%%d/x": b"2\n6\n",
        "web01/var/log/b..%%f": b"4\n5\n",
        "web01/var/log/b/x": b"3\n",
        "web02/%unnamed": b"nobody says of what file\n",
    }


@pytest.mark.parametrize("depth", ["web01", "web01/var/log"])
def test_a_folder_that_became_a_symbolic_link_blocks_and_is_never_written_through(
    partition: Partition, depth: str
) -> None:
    partition.publish(ours("web01", "a", 0, b"1\n"))
    done = partition.receive()
    folder, elsewhere = partition.output / depth, partition.folder / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("a")}
    partition.publish(ours("web01", "a", 2, b"2\n"))

    blocked(partition.run(done.until), Cause.DISK, depth, "symbolic link", "move it away")

    assert {path: path.read_bytes() for path in elsewhere.rglob("a")} == before
    folder.unlink()
    elsewhere.rename(folder)
    partition.receive(done.until)
    assert partition.files() == {"web01/var/log/a": b"1\n2\n"}


def test_what_is_made_has_its_mode_and_owner_whatever_the_umask(partition: Partition) -> None:
    partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(4)))
    is_root = os.geteuid() == 0
    group = 7 if is_root else -1
    permissions = Permissions(0o664, 0o2775, -1, group)
    before = os.umask(0o077)
    try:
        replace(partition, rotate_size=8, permissions=permissions).receive()
    finally:
        os.umask(before)

    made = [partition.output / "web01", *(partition.output / "web01").rglob("*")]
    assert len(made) == 5
    assert partition.state.stat().st_mode & 0o7777 == 0o750
    assert partition.state.stat().st_gid == os.getegid()
    for path in made:
        found = path.stat()
        assert oct(found.st_mode & 0o7777) == ("0o2775" if path.is_dir() else "0o664")
        assert not is_root or found.st_gid == group
