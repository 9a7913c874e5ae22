"""Closed segments looked after beside everything else."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from receiver.driver.driver import retain
from receiver.storage.retention import Order, Retention
from tests.receiver.stored import add


class Watched(Retention):
    """A retention that tells who tidies, and how that is ranked."""

    niceness = -1

    def tidy(self, stopped: Callable[[], bool]) -> None:
        super().tidy(stopped)
        self.niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def make(folder: Path, *names: str) -> Watched:
    for name in names:
        (folder / name).write_bytes(b"line\n" * 1000)
    (folder / "state").mkdir()
    add(folder / "state", folder, *names)
    return Watched(Order(folder, folder / "state", "zstd"), lambda: 0)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_what_was_closed_is_compressed_before_the_end_in_low_priority_unless_told_to_stop(
    tmp_path: Path, *, is_stopped: bool
) -> None:
    names = [f"web01.log.{number:06d}" for number in range(1, 4)]
    retention = make(tmp_path, *names)
    done, stop = asyncio.Event(), asyncio.Event()
    done.set()
    if is_stopped:
        stop.set()

    await retain(retention, asyncio.Event(), done, stop)

    assert names_in(tmp_path) == [name if is_stopped else f"{name}.zst" for name in names]
    assert retention.niceness > os.getpriority(os.PRIO_PROCESS, 0)
