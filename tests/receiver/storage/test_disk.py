"""A real ext4 that fails while lines are synced."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from receiver.storage.disk import raise_if_failed
from tests.chaos.disks import Disk, have_blocks


def write_until_it_fails(path: Path) -> int:
    """Append lines, each synced and checked, and return how many were."""
    with path.open("ab", buffering=0) as file, suppress(OSError):
        for number in count():
            file.write(b"%0700d\n" % number)
            os.fdatasync(file.fileno())
            raise_if_failed(path)
    return number


def test_no_line_is_lost_that_was_synced_and_checked_while_ext4_failed(tmp_path: Path) -> None:
    if not have_blocks():
        pytest.skip("no file system on a loop device here")
    for number in range(10):  # without the check about one of four loses lines
        disk = Disk.mounted(f"disk{number}", tmp_path / str(number), 64, tmp_path)
        paths = [disk.path / name for name in "abc"]
        with ThreadPoolExecutor() as pool:
            writing = pool.map(write_until_it_fails, paths)
            while not all(path.exists() and path.stat().st_size > 70_000 for path in paths):
                os.sched_yield()
            disk.fail()
            believed = list(writing)
        disk.unmount()
        disk.mend()
        found = [path.read_bytes().count(b"\n") for path in paths]
        disk.unmount()

        assert all(is_there >= said for is_there, said in zip(found, believed, strict=True))
