"""A lock has one owner, or several that share it, and is free when they have ended."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from nats_logship.app.locks import Lock, Locked, exclusive_lock, lock, try_lock
from tests.descriptors import opened

TREE = Path(__file__).parents[3]
PACKAGES = ("broker", "nats_logship", "pyspark_jetstream", "receiver", "shipper")
HOLDER = """
import sys, time
from pathlib import Path
from nats_logship.app.locks import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), 0.0):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("first", Lock)
@pytest.mark.parametrize("second", Lock)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_only_shared_locks_are_held_together(
    tmp_path: Path, kind: str, first: Lock, second: Lock
) -> None:
    path = tmp_path / "one"
    path.touch() if kind == "file" else path.mkdir()
    with opened(path) as one:
        lock(one, kind=first)
        with opened(path) as other:
            assert try_lock(other, second) == (first is second is Lock.SHARED)
    with opened(path) as other:
        assert try_lock(other, Lock.EXCLUSIVE)


@pytest.mark.parametrize("patience", [0.0, 0.2])
def test_a_lock_that_is_not_released_raises_the_text_of_the_caller(
    tmp_path: Path, patience: float
) -> None:
    with exclusive_lock(tmp_path / "lock", 0.0), opened(tmp_path / "lock") as other:
        began = time.monotonic()
        with pytest.raises(Locked, match="another cook is in the kitchen"):
            lock(other, "another cook is in the kitchen", patience)
        assert time.monotonic() - began >= patience


def test_the_error_of_an_exclusive_lock_names_path_and_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive_lock(path, 0.0):
        with pytest.raises(Locked, match=f"another process has held {path} for 0.1 s"):
            ExitStack().enter_context(exclusive_lock(path, 0.1))
        with pytest.raises(Locked, match="stop it"):
            ExitStack().enter_context(exclusive_lock(path, 0.0, "stop it"))


def test_a_child_that_inherits_the_descriptor_keeps_the_lock(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "lock", 0.0) as descriptor:
        inherited = os.dup(descriptor)
    with opened(tmp_path / "lock") as other:
        assert not try_lock(other)
        os.close(inherited)
        assert try_lock(other)


def test_a_waiting_process_gets_the_lock_of_a_killed_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with opened(tmp_path / "lock") as other:
            assert not try_lock(other)
            holder.kill()
            lock(other)


def test_no_other_module_locks_by_itself() -> None:
    modules = [path for package in PACKAGES for path in (TREE / package).rglob("*.py")]
    locking = [path for path in modules if "flock(" in path.read_text().replace("lockf(", "flock(")]
    assert [path.relative_to(TREE).as_posix() for path in locking] == ["nats_logship/app/locks.py"]
