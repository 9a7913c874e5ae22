"""The memory of an agent is bounded. Real program, real broker."""

import gc
import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from bench.backlog import LINE_BYTES, write_backlog
from bench.cpu import peak_bytes_of
from nats_logship.wire.positions import Cursor, Positions
from tests.descriptors import held_here
from tests.shipper.host import Host
from tests.shipper.logs import Ship
from tests.shipper.shipped import origins
from tests.support.processes import Process, wait_until

MIB = 1024 * 1024
BOUND = 64 * MIB
BACKLOG = 64 * MIB


def peak_of(agent: Process) -> int:
    """Wait for the end of an agent with --once; return its largest resident set."""
    peak = 0

    def has_ended() -> bool:
        nonlocal peak
        peak = max(peak, peak_bytes_of(agent.pid))
        return not agent.is_running()

    wait_until("all is shipped", has_ended, 60)
    assert agent.wait(1) == 0, agent.last_output()
    return peak


def logs(path: Path) -> None:
    write_backlog(path / "a.log", BACKLOG // LINE_BYTES)


def noise(path: Path) -> None:
    (path / "a.log").write_bytes(os.urandom(BACKLOG))


def endless_lines(path: Path) -> None:
    for name in "abc":
        (path / f"{name}.log").write_bytes(os.urandom(1) * (BACKLOG // 4) + b"\n")


def many_files(path: Path) -> None:
    for number in range(1000):
        (path / f"{number}.log").write_bytes(b"%04d %b\n" % (number, b"x" * 100) * 500)


@pytest.mark.nats
@pytest.mark.long
def test_a_backlog_of_any_kind_needs_bounded_memory(
    logs_url: str, ship: Ship, log: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    one_line = peak_of(ship(logs_url, "--file", log, "--once"))

    for make, *options in (
        (logs,),
        (noise,),
        (endless_lines, "--compression", "none", "--max-line", "4MiB"),
        (many_files, "--compression", "none"),
    ):
        (folder := tmp_path / make.__name__).mkdir()
        make(folder)
        files = ("--file", folder / "*.log", "--once", "--patience", "60s")
        with subtests.test(make.__name__):
            assert peak_of(ship(logs_url, *files, *options)) < one_line + BOUND


async def test_a_followed_file_needs_less_than_5_kib_and_rounds_have_few_blocks(
    tmp_path: Path,
) -> None:
    files = 1000
    for number in range(files):
        path = tmp_path / f"application-{number:05d}.log"
        path.write_bytes(b"%04d %b\n" % (number, b"x" * 100) * 20)
    host, positions = Host(tmp_path, "*.log"), Positions()
    most = 0

    tracemalloc.start()
    await host.follower.scan()
    while blocks := await host.follower.gather(8 * MIB):
        most = max(most, len(blocks))
        positions = positions.advance(origins(blocks), 1)
    del blocks
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await host.follower.close()

    assert len(positions.files) == files
    assert held / files < 5 * 1024
    assert most <= 400


async def test_the_buffer_for_reading_is_as_small_as_what_there_is_to_read(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_bytes(b"a line\n")

    tracemalloc.start()
    host = Host(tmp_path, "*.log")
    await host.ship()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await host.follower.close()

    assert host.shipped == b"a line\n"
    assert held < MIB // 2


def cursors() -> int:
    """Return how many cursors anything in this process holds."""
    gc.collect()
    return sum(isinstance(one, Cursor) for one in gc.get_objects())


async def test_memory_does_not_grow_with_rotations_and_short_lived_files(tmp_path: Path) -> None:
    host = Host(tmp_path, "*.log", grace=0.0)

    def position(file: str) -> int:
        # everything is stored, and gone files have no position
        return sys.maxsize if any(s.file == file for s in host.follower.files()) else 0

    host.follower.stored = position
    before, known = held_here(), cursors()
    for number in range(400):
        host.write("app.log", b"%d\n" % number)
        host.write(f"passing-{number}.log", b"")
        await host.ship()
        (tmp_path / "app.log.1").unlink(missing_ok=True)
        host.move("app.log", "app.log.1")
        (tmp_path / f"passing-{number}.log").unlink()
    await host.ship()

    assert host.shipped.split() == [b"%d" % number for number in range(400)]
    assert len(host.follower.files()) <= 4
    assert cursors() - known < 400
    assert held_here() - before < 20
    await host.follower.close()
