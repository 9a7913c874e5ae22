"""A task and the paths of its files: folders, days, modes, hostile names, other layouts, few descriptors."""

import json
import os
import subprocess
import sys
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
from receiver.permissions import Permissions
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


def test_segments_in_folders_are_numbered_and_undone_where_they_are(partition: Partition) -> None:
    partition.publish(*(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(3)))
    done = receive(partition, 1, rotate_size=8)
    before = tree(partition)
    assert done.closed == ("web01/var/log/a.000001",)
    partition.publish(
        ours("web01", "b", 0, b"new\n"),
        *(ours("web01", "a", n * 4, b"%03d\n" % n) for n in range(3, 8)),
    )

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("receiver.consume.batch.fault", _full_when_synced)
        blocked(run(partition, done.until, rotate_size=8), Cause.DISK, "No space")
    assert tree(partition) == {**before, "web01/var/log/b": b""}

    receive(partition, done.until, rotate_size=8)

    assert tree(partition) == {
        "web01/var/log/a": b"006\n007\n",
        "web01/var/log/a.000001": b"000\n001\n",
        "web01/var/log/a.000002": b"002\n003\n",
        "web01/var/log/a.000003": b"004\n005\n",
        "web01/var/log/b": b"new\n",
    }


def _full_when_synced(name: str) -> None:
    if name == "synced":
        raise OSError(28, "No space left on device")


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


_FEW = """
import json, resource, sys
from dataclasses import replace
from pathlib import Path
from receiver.consume import task
from receiver.consume.assignment import Assignment, Destination
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
first, output, state, server, template = json.loads(sys.argv[1])
destination = Destination(Path(output), Path(state), 0, (server,), path_template=template)
done = task.run(Assignment(0, first, 1, 64_000_000), destination).done
print(done.until if hasattr(done, "until") else done)
"""


@pytest.mark.long
def test_five_thousand_hosts_are_written_with_a_thousand_descriptors(
    partition: Partition,
) -> None:
    template = "{host}/{date}.log"
    hosts = [f"host{n}" for n in range(5000)]
    first = 1
    for turn in range(2):
        partition.publish_in_any_order(
            ours(host, "a.log", turn * 2, b"%d\n" % turn) for host in hosts
        )
        words = (first, str(partition.output), str(partition.state), partition.url, template)
        ran = subprocess.run(
            [sys.executable, "-c", _FEW, json.dumps(words)],
            capture_output=True,
            text=True,
            timeout=720,
            check=False,
        )
        assert ran.stdout.strip() == str(first + 5000), ran.stdout + ran.stderr
        first += 5000
        partition.move(first)

    written: dict[str, bytes] = {}
    for path, data in tree(partition).items():  # midnight may have come in between
        host = path.partition("/")[0]
        written[host] = written.get(host, b"") + data
    assert len(written) == 5000
    assert set(written.values()) == {b"0\n1\n"}
