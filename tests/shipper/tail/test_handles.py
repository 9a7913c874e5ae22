"""Open files: what becomes of the others when one cannot be closed. Real descriptors."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.shipper.tail.conftest import MakeHost


async def test_a_moment_without_descriptors_costs_no_deleted_file(
    tmp_path: Path, make_host: MakeHost
) -> None:
    host = make_host("*.log", open_files=40)
    names = [f"{number}.log" for number in range(30)]
    for name in names:
        host.write(name, b"line\n")
    await host.ship()
    assert host.follower.open_files == 30
    for name in names[:20]:
        host.write(name, b"rest\n")
        (tmp_path / name).unlink()
    await host.look()
    for name in ("x.log", "y.log", "z.log"):
        host.write(name, b"new\n")

    with few_descriptors():
        await host.look()
    await host.ship()
    for number in range(30, 80):
        host.write(f"{number}.log", b"later\n")
    await host.ship()

    counts = [host.shipped.count(word) for word in (b"rest\n", b"new\n", b"later\n")]
    assert counts == [20, 3, 50]
    assert host.follower.open_files == 40  # as many as it may


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Leave this process one free descriptor: enough to list a folder, and not to open two files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(one.name) for one in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 20, hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
