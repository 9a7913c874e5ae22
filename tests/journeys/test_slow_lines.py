"""Lines that cannot be compressed come over slow lines, to the broker and from it."""

import json
import os
import random
import time
from pathlib import Path

import pytest

from nats_logship.wire.streams import SLOWEST_LINK
from tests.shipper.conftest import read_lines
from tests.shipper.logs import run
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until
from tests.support.slow_line import slow_line
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats]

HOST = f"far-{os.getpid()}"  # whose agent nobody else on this machine asks


def noise(size: int, longest: int = 300) -> bytes:
    chance, lines, left = random.Random(1), list[bytes](), size
    while left > 0:
        line = chance.randbytes(chance.randrange(longest // 2, longest)).replace(b"\n", b" ")
        lines.append(line + b"\n")
        left -= len(lines[-1])
    return b"".join(lines)


def impatient(folder: Path, every: int) -> Path:
    """Write settings by which a client is dead after three pings, each after `every` seconds."""
    settings = folder / "broker.toml"
    settings.write_text(f'[nats]\nping_interval = "{every}s"\n', "utf-8")
    return settings


def ship(suite: Suite, url: str, log: Path, *options: str) -> Process:
    """Start a shipper of `HOST` that ends when all of a file is shipped to an address."""
    arguments = ["--server", url, "--host", HOST, "--file", log, "--once", *options]
    return suite.start_program("logshipper", "shipper", arguments)


def steps(shipper: Process, seconds: float) -> set[int]:
    """Wait for the end of a shipper, and return the positions that its status has shown."""
    seen: set[int] = set()

    def is_done() -> bool:
        done = run("status", "--json", "--host", HOST)
        reports = json.loads(done.stdout) if done.returncode == 0 else []
        seen.update(file["position_bytes"] for one in reports for file in one["files"])
        return not shipper.is_running()

    wait_until("all is shipped", is_done, seconds, every=0.5)
    assert shipper.wait(1) == 0, shipper.last_output()
    return seen


@pytest.mark.parametrize("ack", ["--ack", pytest.param("--no-ack", marks=pytest.mark.long)])
def test_a_backlog_that_takes_longer_than_the_broker_waits_is_shipped_in_steps(
    suite: Suite, tmp_path: Path, ack: str
) -> None:
    suite.start_broker("--config", str(impatient(tmp_path, 2)))
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(800_000))

    with slow_line(suite.url, 50_000) as line:
        seen = steps(ship(suite, line.url, log, ack), 120)

    assert read_lines(suite.url) == written
    assert len(seen - {0, len(written)}) >= 2, "progress is shown"


@pytest.mark.long
def test_large_messages_are_received_one_by_one_over_a_slow_line(
    suite: Suite, tmp_path: Path
) -> None:
    suite.start_broker("--config", str(impatient(tmp_path, 2)))
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(3_000_000, longest=900_000))
    shipper = ship(suite, suite.url, log)
    assert shipper.wait(60) == 0, shipper.last_output()

    with slow_line(suite.url, 150_000) as line:
        arguments = ["--server", line.url, "--output", str(suite.output), "--partition", "all"]
        receiver = suite.start_program("logreceiver", "receiver", [*arguments, "--once"])

        assert receiver.wait(120) == 0, receiver.last_output()
    assert (suite.output / f"{HOST}.log").read_bytes() == written


def test_a_stream_that_takes_only_small_messages_gets_small_rounds(
    suite: Suite, tmp_path: Path
) -> None:
    suite.start_broker()
    limited = {**suite.stream()["config"], "max_msg_size": 80_000}
    suite.ask(lambda connection: connection.api("STREAM.UPDATE.LOGS", limited))
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(700_000) + noise(400_000, longest=300_000))
    shipper = ship(suite, suite.url, log)

    assert shipper.wait(60) == 0, shipper.last_output()
    assert read_lines(suite.url) == written


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_line_of_a_log_is_shipped_in_pieces_over_the_slowest_line(
    suite: Suite, tmp_path: Path
) -> None:
    suite.start_broker()
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(900_000, longest=1_000_000))

    with slow_line(suite.url, SLOWEST_LINK) as line:
        seen = steps(ship(suite, line.url, log), 300)

    assert read_lines(suite.url) == written
    assert len(seen - {0, len(written)}) >= 2, "progress is shown"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_site_has_is_copied_over_a_slow_line_as_fast_as_that_is(
    processes: Processes, tmp_path: Path
) -> None:
    centre, branch = (Suite(tmp_path / name, processes, 2) for name in ("centre", "branch"))
    door, rate = f"127.0.0.1:{free_port()}", 64_000
    log = tmp_path / "a.log"
    log.write_bytes(written := noise(8_000_000))  # longer than a ping of a client may take
    sources = tmp_path / "centre.toml"
    sources.write_text('source = ["branch"]\n', "utf-8")
    centre.start_broker(*("--config", str(sources), "--site", "centre", "--site-listen", door))
    with slow_line(f"nats://{door}", rate) as line:
        branch.start_broker("--site", "branch", "--site-remote", f"nats-leaf://{line.address}")
        shipper = ship(branch, branch.url, log, "--round-size", "7MiB")
        assert shipper.wait(60) == 0, shipper.last_output()
        # nats-server asks another site for the first time after 40 s
        held = lambda suite: suite.stream()["state"]["messages"]  # noqa: E731
        began, is_due = time.monotonic(), lambda: held(centre) >= held(branch)
        wait_until("all is copied", is_due, 60 + 3 * len(written) / rate, every=2)

    assert read_lines(centre.url) == written
    assert time.monotonic() - began > 0.9 * len(written) / rate, "it has come over another line"
