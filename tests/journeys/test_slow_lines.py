"""Lines that cannot be compressed come over slow lines, to the broker and from it."""

import json
import os
import random
from pathlib import Path

import pytest

from tests.shipper.conftest import read_lines
from tests.shipper.logs import run
from tests.support.processes import Process, wait_until
from tests.support.slow_line import SlowLine, slow_line
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats]

HOST = f"far-{os.getpid()}"  # whose agent nobody else on this machine asks
SLOWEST = 8_000  # bytes a second: 64 kbit/s


def noise(size: int, longest: int = 300) -> bytes:
    """Return lines of bytes that cannot be compressed."""
    chance, found = random.Random(1), b""
    while len(found) < size:
        line = chance.randbytes(chance.randrange(longest // 2, longest))
        found += line.replace(b"\n", b" ") + b"\n"
    return found


def start_impatient_broker(suite: Suite, tmp_path: Path, every: float) -> None:
    """Start a broker that takes a client for dead whose pings wait for thrice so many seconds."""
    settings = tmp_path / "broker.toml"
    settings.write_text(f'[nats]\nping_interval = "{every:.0f}s"\n', "utf-8")
    suite.start_broker("--config", str(settings))


def ship(suite: Suite, line: SlowLine, log: Path, *options: str) -> Process:
    """Start a shipper of `HOST` that ends when all of a file is shipped over a line."""
    words = ["--server", line.url, "--host", HOST, "--file", log, "--once", *options]
    return suite.start_program("logshipper", "shipper", words)


def steps(shipper: Process, seconds: float) -> set[int]:
    """Wait for the end of a shipper, and return the positions that its status has shown."""
    seen: set[int] = set()

    def is_done() -> bool:
        told = run("status", "--json", "--host", HOST)
        reports = json.loads(told.stdout) if told.returncode == 0 else []
        seen.update(file["position_bytes"] for one in reports for file in one["files"])
        return not shipper.is_running()

    wait_until("all is shipped", is_done, seconds, every=0.5)
    assert shipper.wait(1) == 0, shipper.last_words()
    return seen


@pytest.mark.parametrize("ack", ["--ack", "--no-ack"])
def test_a_backlog_that_takes_longer_than_the_brokers_patience_is_shipped_in_steps(
    suite: Suite, tmp_path: Path, ack: str
) -> None:
    start_impatient_broker(suite, tmp_path, 2)
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(1_000_000))

    with slow_line(suite.url, 100_000) as line:
        seen = steps(ship(suite, line, log, ack), 60)

    assert read_lines(suite.url) == written
    assert len(seen - {0, len(written)}) >= 2, "progress is shown"
