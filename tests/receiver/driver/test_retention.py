"""Closed segments looked after beside everything else."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

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


async def test_what_was_closed_is_compressed_before_the_end_behind_everybody_elses_work(
    tmp_path: Path,
) -> None:
    names = [f"web01.log.{number:06d}" for number in range(1, 4)]
    retention = make(tmp_path, *names)
    done = asyncio.Event()
    done.set()

    await retain(retention, asyncio.Event(), done, asyncio.Event())

    assert names_in(tmp_path) == [f"{name}.zst" for name in names]
    assert retention.niceness > os.getpriority(os.PRIO_PROCESS, 0)


async def test_told_to_leave_it_leaves_segments_as_they_are(tmp_path: Path) -> None:
    retention = make(tmp_path, "web01.log.000001")
    stop = asyncio.Event()
    stop.set()

    await retain(retention, asyncio.Event(), stop, stop)

    assert names_in(tmp_path) == ["web01.log.000001"]
