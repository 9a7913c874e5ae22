"""A growing file is read without a thread where the kernel holds what was written, and by one where it does not."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.shipper.host import Host


class Threads(ThreadPoolExecutor):
    """Counts how often a thread was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.visits = 0

    def submit(self, task: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.visits += 1
        return super().submit(task, *args, **kwargs)


def tells_what_it_holds(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            return False
    return True


def drop_from_memory(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize(
    ("lines", "in_memory", "visits"),
    [
        pytest.param(1, True, 0, id="few bytes in memory"),
        pytest.param(10_000, True, 1, id="many bytes"),
        pytest.param(4000, False, 1, id="bytes that only the disk has"),
    ],
)
async def test_only_few_bytes_that_the_kernel_holds_are_read_without_a_thread(
    tmp_path: Path, lines: int, in_memory: bool, visits: int
) -> None:
    host, path = Host(tmp_path), tmp_path / "app.log"
    host.write("app.log", b"first\n")
    if not tells_what_it_holds(path):
        pytest.skip("this file system does not say what it holds in memory")
    while host.follower.look_due:
        await host.ship()
    await host.follower.wait(0.2)
    host.write("app.log", b"line\n" * lines)
    await host.follower.wait(20)
    if not in_memory:
        drop_from_memory(path)
    threads = Threads()
    asyncio.get_running_loop().set_default_executor(threads)

    (block,) = await host.follower.gather(1 << 20)

    assert block.lines == b"line\n" * lines
    assert threads.visits == visits
    await host.follower.close()
