"""A day of rotations in fast forward: all lines once and in order, and an agent that does not grow by it.

`LOGSHIP_ROTATIONS=2000` asks for as many as a day of a busy host has; 360 are enough to see what leaks.
"""

import asyncio
import gzip
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.client.connection import Connection
from broker.wire.message import decode_payload
from broker.wire.subjects import Subject
from tests.shipper.logs import Ship
from tests.shipper.saved import Saved
from tests.support.oracle import judge
from tests.support.processes import Process

pytestmark = [pytest.mark.nats, pytest.mark.timeout(1800)]

ROTATIONS = int(os.environ.get("LOGSHIP_ROTATIONS", "360"))
SETTLED = ROTATIONS // 3
"""After so many rotations everything that is to be remembered at a time has been there once."""

KEPT = 100
LINES = 20
AHEAD = 70
"""Rotations by which the writer may be ahead of the agent: what is rotated away may be deleted after `KEPT`."""

REMEMBERED = 550
"""Files in the positions: those kept, 64 that are gone, and what gathers (256, and in a second) until it is sorted out."""


class Log:
    """A log that is written and rotated as fast as its agent can follow."""

    def __init__(self, folder: Path, url: str) -> None:
        self.live = folder / "app.log"
        self.written = bytearray()
        self.lines = 0
        self._runner = asyncio.Runner()
        self._connection = Connection([url], "test")

    def write(self) -> None:
        numbers = range(self.lines, self.lines + LINES)
        data = b"".join(b"%09d the quick brown fox jumps over the lazy dog\n" % n for n in numbers)
        with self.live.open("ab") as file:
            file.write(data)
        self.written += data
        self.lines += LINES

    def rotate(self, number: int) -> None:
        """Rotate as logrotate with `dateext`; every 10th is compressed late, every 100th is copied and truncated."""
        rotated = self._rotated(number)
        if number % 100 == 25:
            self.wait_for(self.lines)
            shutil.copy2(self.live, rotated)
            os.truncate(self.live, 0)
        else:
            self.live.rename(rotated)
        if number % 10 == 9:
            self._compress(self._rotated(number - 5))
        for old in (self._rotated(number - KEPT), self._packed(self._rotated(number - KEPT))):
            old.unlink(missing_ok=True)

    def wait_for(self, lines: int) -> None:
        deadline = time.monotonic() + 60
        while self._runner.run(self._shipped()) < lines:
            assert time.monotonic() < deadline, "the agent does not follow"
            time.sleep(0.01)

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()

    async def _shipped(self) -> int:
        subject = Subject.for_host("web01", 2)
        newest = await self._connection.request(f"$JS.API.DIRECT.GET.LOGS.{subject}")
        lines = decode_payload(newest.headers or {}, newest.data).splitlines()
        return int(lines[-1].split()[0]) + 1 if lines else 0

    def _rotated(self, number: int) -> Path:
        return self.live.with_name(f"{self.live.name}-{number:07d}")

    def _packed(self, path: Path) -> Path:
        return path.with_name(f"{path.name}.gz")

    def _compress(self, path: Path) -> None:
        if path.exists():
            status = path.stat()
            packed = self._packed(path)
            packed.write_bytes(gzip.compress(path.read_bytes()))
            os.utime(packed, ns=(status.st_mtime_ns, status.st_mtime_ns))
            path.unlink()


def resident(process: Process) -> int:
    """Return the memory of a program in KiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def open_files(process: Process) -> int:
    return sum(1 for _ in Path(f"/proc/{process.pid}/fd").iterdir())


def test_a_day_of_rotations_leaves_every_line_once_and_the_agent_as_it_was(
    logs_url: str, ship: Ship, tmp_path: Path, read_back: Callable[[str], bytes]
) -> None:
    log = Log(tmp_path, logs_url)
    log.write()
    agent = ship(logs_url, "--file", log.live, "--grace", "1s")
    log.wait_for(log.lines)
    files, memory = 0, 0

    for number in range(ROTATIONS):
        log.rotate(number)
        log.write()
        if number % 20 == 0:
            log.wait_for(log.lines - AHEAD * LINES)
        if number == SETTLED:
            log.wait_for(log.lines)
            files, memory = open_files(agent), resident(agent)
    log.wait_for(log.lines)
    after_files, after_memory = open_files(agent), resident(agent)
    log.close()
    agent.stop()
    positions = Saved(logs_url).positions().files

    verdict = judge([bytes(log.written)], read_back(logs_url))
    assert verdict.is_perfect, verdict
    assert after_files <= files + 10
    assert after_memory <= memory + 8 * 1024
    assert len(positions) <= REMEMBERED
