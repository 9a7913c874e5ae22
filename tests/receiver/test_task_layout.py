"""A task and the paths of its files: folders, days, modes, hostile names, other layouts, few descriptors."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from receiver.consume import task
from receiver.consume.assignment import (
    Cause,
    Destination,
    Done,
    Ending,
)
from receiver.storage.layout import Permissions
from tests.receiver.partition import Partition, blocked, ours

pytestmark = pytest.mark.nats

BY_FILE = "{host}/{file}"


@pytest.fixture
def partition(logs_url: str, tmp_path: Path) -> Partition:
    made = Partition(logs_url, tmp_path)
    made.claim()
    return made


def run(partition: Partition, first: int, template: str = BY_FILE, **changes: object) -> object:
    destination: Destination = replace(
        partition.destination,
        path_template=template,
        **changes,  # type: ignore[arg-type]
    )
    report = task.run(partition.assignment(first), destination)
    return report.done if isinstance(report.ended, Ending) else report.ended


def receive(partition: Partition, first: int, template: str = BY_FILE, **changes: object) -> Done:
    """Receive all that there is; return it as one."""
    whole = Done(0, first, first)
    while True:
        done = run(partition, whole.until, template, **changes)
        assert isinstance(done, Done), done
        if done.until == done.first:
            return whole
        whole = whole.then(done)


def tree(partition: Partition) -> dict[str, bytes]:
    """Return all files below the output folder that are not hidden."""
    paths = (path.relative_to(partition.output) for path in partition.output.rglob("*"))
    return {
        str(path): (partition.output / path).read_bytes()
        for path in sorted(paths)
        if (partition.output / path).is_file() and not path.parts[0].startswith(".")
    }


def test_every_file_of_a_host_has_one_of_its_own_below(partition: Partition) -> None:
    partition.publish(
        ours("web01", "a", 0, b"1\n"),
        ours("web01", "nginx/a.log", 0, b"2\n"),
        ours("web02", "a", 0, b"3\n"),
        ("logs.p0.web01", b"4", None),
        ours("web01", "a", 2, b"5\n"),
    )

    receive(partition, 1)

    assert tree(partition) == {
        "web01/%unnamed": b"4\n",
        "web01/var/log/a": b"1\n5\n",
        "web01/var/log/nginx/a.log": b"2\n",
        "web02/var/log/a": b"3\n",
    }


def test_a_path_may_be_a_file_first_and_a_folder_later_and_the_other_way_round(
    partition: Partition,
) -> None:
    partition.publish(
        ours("web01", "a", 0, b"1\n"),
        ours("web01", "a/x", 0, b"2\n"),
        ours("web01", "b/x", 0, b"3\n"),
        ours("web01", "b", 0, b"4\n"),
    )
    first = receive(partition, 1)
    partition.publish(ours("web01", "b", 2, b"5\n"), ours("web01", "a/x", 2, b"6\n"))

    receive(partition, first.until)

    assert tree(partition) == {
        "web01/var/log/a": b"1\n",
        "web01/var/log/a..%%d/x": b"2\n6\n",
        "web01/var/log/b..%%f": b"4\n5\n",
        "web01/var/log/b/x": b"3\n",
    }


@pytest.mark.parametrize("depth", ["web01", "web01/var/log"])
def test_a_folder_that_became_a_symbolic_link_blocks_and_is_never_written_through(
    partition: Partition, depth: str
) -> None:
    partition.publish(ours("web01", "a", 0, b"1\n"))
    done = receive(partition, 1)
    folder, elsewhere = partition.output / depth, partition.folder / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("a")}
    partition.publish(ours("web01", "a", 2, b"2\n"))

    blocked(run(partition, done.until), Cause.DISK, depth, "symbolic link", "move it away")

    assert {path: path.read_bytes() for path in elsewhere.rglob("a")} == before
    folder.unlink()
    elsewhere.rename(folder)
    receive(partition, done.until)
    assert tree(partition) == {"web01/var/log/a": b"1\n2\n"}


def test_what_is_made_has_its_mode_and_owner_whatever_the_umask(partition: Partition) -> None:
    partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(4)))
    is_root = os.geteuid() == 0
    group = 7 if is_root else -1
    before = os.umask(0o077)
    try:
        receive(partition, 1, rotate_size=8, permissions=Permissions(0o664, 0o2775, -1, group))
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
