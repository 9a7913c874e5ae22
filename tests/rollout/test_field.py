"""A field leaves nothing behind, however the test that laid it out ends, in the middle of a play too."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.rollout.field import REASON, ROOT
from tests.support.processes import TookTooLong, wait_until

pytestmark = [
    pytest.mark.booted,
    pytest.mark.timeout(200),
    pytest.mark.skipif(bool(REASON), reason=REASON),
]
TOKEN = "LAID_OUT_BY"
TEST = """
import sys
from pathlib import Path
from tests.rollout.field import laid_out

folder = Path(sys.argv[1])
with laid_out(folder / "field", ["web01"]) as field:
    field.inventory({"logship_shippers": ["web01"]}, {})
    field.play(str(folder / "play.yml"))
    raise RuntimeError("its body fails")
"""
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: touch /run/played
    - ansible.builtin.command: sleep {seconds}
"""
KINDS = ("mnt", "net", "pid", "uts", "ipc")
CGROUPS = Path("/sys/fs/cgroup")


def theirs(folder: Path) -> Iterator[Path]:
    """Give the processes that a field has, by /proc: they were told of the folder, or have a mount in it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes() + (process / "mountinfo").read_bytes()
        except OSError:
            continue  # it has gone, or is the kernel's
        if os.fsencode(folder) in told:
            yield process


def namespaces(processes: Iterable[Path]) -> set[tuple[str, int]]:
    """Return the namespaces of processes, by kind and inode."""
    found = set()
    for process in processes:
        for kind in KINDS:
            with suppress(OSError):
                found.add((kind, (process / "ns" / kind).stat().st_ino))
    return found


@contextmanager
def held(processes: Iterable[Path]) -> Iterator[set[tuple[str, int]]]:
    """Give the namespaces of processes but our own; held open, so that none made later has the inode of one that has gone."""
    with ExitStack() as stack:
        found = set()
        own = namespaces([Path("/proc/self")])
        for process in processes:
            for kind in KINDS:
                with suppress(OSError):
                    file = stack.enter_context((process / "ns" / kind).open("rb"))
                    found.add((kind, os.fstat(file.fileno()).st_ino))
        yield found - own


def left(folder: Path, made: set[tuple[str, int]]) -> list[str]:
    """Name what is left of a field: processes, namespaces, mounts, links of a network."""
    alive = namespaces(Path("/proc").glob("[0-9]*"))
    mounts = [
        line
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(folder) in line or any(f"{kind}:[{inode}]" in line for kind, inode in made)
    ]
    links = [one.name for one in Path("/sys/class/net").iterdir() if _is_ours(one.name)]
    return [*map(str, theirs(folder)), *map(str, made & alive), *mounts, *links]


def groups(pid: int) -> list[Path]:
    """Return the groups of processes that a test has made, those within others first."""
    return sorted(CGROUPS.glob(f"*/logship-{pid}-*/**"), reverse=True)


def _is_ours(link: str) -> bool:
    return link == "rollout" or "logship" in link


@pytest.mark.parametrize("how", ["raise", "SIGTERM", "SIGINT", "SIGKILL"])
def test_nothing_is_left_of_a_field_whose_test_fails_or_is_ended(tmp_path: Path, how: str) -> None:
    seconds = 1 if how == "raise" else 600
    (tmp_path / "play.yml").write_text(PLAY.format(seconds=seconds), "utf-8")
    with (tmp_path / "test.log").open("wb") as log:
        test = subprocess.Popen(
            [sys.executable, "-c", TEST, tmp_path],
            cwd=ROOT,
            env=os.environ | {TOKEN: str(tmp_path)},
            stdout=log,
            stderr=log,
        )
    try:
        played = lambda: any((p / "root/run/played").exists() for p in theirs(tmp_path))  # noqa: E731
        wait_until("it plays", played, 120)
        with held(theirs(tmp_path)) as made:
            assert {kind for kind, _ in made} == set(KINDS)
            if how != "raise":
                test.send_signal(getattr(signal, how))
            assert test.wait(60) != 0

            # who is killed removes no groups; they are empty
            remains = lambda: [  # noqa: E731
                *left(tmp_path, made),
                *map(str, groups(test.pid) if how != "SIGKILL" else ()),
            ]
            with suppress(TookTooLong):
                wait_until("nothing is left", lambda: not remains(), 30)
            assert remains() == []
    finally:
        test.kill()
        test.wait()
        for group in groups(test.pid):
            group.rmdir()
