"""The real program keeps its positions in the broker, and nothing on its disk."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from broker.topology import Topology
from nats_logship.wire.streams import POSITIONS_BUCKET
from tests.shipper.conftest import read_lines, received, wait_for_lines
from tests.shipper.logs import ROOT, Ship, append, lines, rotate, run, wait_for_log
from tests.shipper.points import IN_MOVE, POINTS
from tests.shipper.saved import saved_positions
from tests.support.processes import Process, Processes, wait_until
from tests.support.suite import ask

pytestmark = pytest.mark.nats
BUCKET = f"KV_{POSITIONS_BUCKET}"

ONCE = ("claimed", "rebuilt", "snapshot_sending", "snapshot_written")
"""Points that are passed once in a start."""


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """Return a folder in which a file kills the agent at the point of the file's name."""
    (folder := tmp_path / "faults").mkdir()
    return folder


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (folder := tmp_path / "log").mkdir()
    return folder / "app.log"


@pytest.fixture
def ship(ship: Ship, logs_url: str, log: Path, faults: Path) -> Ship:
    """Return a function that starts the agent of a host, which follows `app.log`."""

    def start(*options: object, host: str = "web01") -> Process:
        environment = {"LOGSHIP_FAULTS": str(faults)}
        files = ("--file", log, "--grace", "1s")
        return ship(logs_url, *files, *options, host=host, environment=environment)

    return start


class Writer:
    """Writes a log, and rotates it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.written = 0

    def write(self, count: int) -> None:
        append(self._log, lines(self.written, self.written + count))
        self.written += count

    def write_and_rotate(self, process: Process, url: str) -> None:
        """Rotate seven times, and wait for the new file's lines, until the process ends."""

        def has_come() -> bool:
            return not process.is_running() or lines(self.written - 1, self.written) in read_lines(
                url
            )

        for _ in range(7):
            if process.is_running():
                self.write(200)
                rotate(self._log)
                self.write(100)
                wait_until("the lines arrive", has_come, 40)

    def has_ended_one_of(self, racing: Sequence[Process]) -> bool:
        """Write, and return whether a process has ended: an older agent ends when it ships."""
        self.write(100)
        return not all(one.is_running() for one in racing)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in IN_MOVE])
def test_every_line_arrives_once_after_a_kill_at_any_point_of_any_start(
    logs_url: str, ship: Ship, log: Path, faults: Path, point: str
) -> None:
    writer = Writer(log)
    writer.write(500)
    (faults / point).touch()
    process = ship("--round-size", 65536)
    assert process.wait(60) == -signal.SIGKILL, process.last_output()
    process.start()
    wait_for_lines(logs_url, lines(0, 500), process, read=received)
    process.kill()
    # at the start; at points that are passed again also after rotations
    for passes in (0,) if point in ONCE else (0, 1, 3):
        (faults / point).write_bytes(b"." * passes)
        writer.write(300)
        rotate(log)
        process.start()
        writer.write_and_rotate(process, logs_url)
        if process.is_running():
            process.kill()
        (faults / point).unlink(missing_ok=True)
        rotate(log)
    writer.write(100)
    process.start()

    wait_for_lines(logs_url, lines(0, writer.written), process, read=received)
    wait_until("runs", lambda: process.catches(signal.SIGTERM), 40, [process])
    assert process.stop(12) == 0
    assert ship("--once").wait(60) == 0
    assert received(logs_url) == lines(0, writer.written)


def test_positions_are_written_again_after_their_bucket_was_deleted(
    logs_url: str, ship: Ship, log: Path
) -> None:
    append(log, lines(0, 500))
    process = ship()
    wait_for_lines(logs_url, lines(0, 500), process, read=received)
    ask(logs_url, lambda broker: broker.api(f"STREAM.DELETE.{BUCKET}"))
    append(log, lines(500, 600))
    # without a new file the agent does not wait for the bucket
    wait_for_lines(logs_url, lines(0, 600), process, read=received)
    rotate(log)
    append(log, lines(600, 700))
    wait_for_log(process, "run `logbroker apply`")
    (bucket,) = [one for one in Topology().streams() if one["name"] == BUCKET]
    ask(logs_url, lambda broker: broker.api(f"STREAM.CREATE.{BUCKET}", bucket))

    wait_for_lines(logs_url, lines(0, 700), process, read=received)
    assert process.stop(12) == 0
    assert sorted(c.offset for c in ask(logs_url, saved_positions).files.values()) == [
        *(len(lines(0, 100)), len(lines(0, 600)))
    ]
    assert read_lines(logs_url) == lines(0, 700)


def test_one_of_two_racing_agents_ends_with_78_and_no_line_is_lost(
    logs_url: str, ship: Ship, log: Path
) -> None:
    writer = Writer(log)
    writer.write(2000)
    for _ in range(3):
        racing = [ship("--take-over", "--round-size", 65536) for _ in range(2)]
        wait_for_lines(logs_url, lines(0, writer.written), read=received)
        wait_until("one ends", lambda r=racing: writer.has_ended_one_of(r), 40)
        (loser,) = [one for one in racing if not one.is_running()]
        (winner,) = [one for one in racing if one.is_running()]
        assert loser.wait(1) == 78, loser.last_output()
        assert "Traceback" not in loser.read_log()
        writer.write(1000)
        wait_for_lines(logs_url, lines(0, writer.written), winner, read=received)
        assert winner.stop(12) == 0
        (cursor,) = ask(logs_url, saved_positions).files.values()
        assert cursor.offset == log.stat().st_size
    assert read_lines(logs_url) == lines(0, writer.written)


def test_an_idle_agent_ends_soon_after_another_has_taken_over(
    logs_url: str, ship: Ship, log: Path
) -> None:
    append(log, lines(0, 100))
    first = ship()
    wait_for_lines(logs_url, lines(0, 100), first, read=received)

    second = ship("--take-over")

    assert first.wait(40) == 78, first.last_output()
    assert "ships for the same host and started later" in first.read_log()
    append(log, lines(100, 200))
    wait_for_lines(logs_url, lines(0, 200), second, read=received)
    assert second.stop(12) == 0


@pytest.fixture
def no_disk(tmp_path: Path) -> Iterator[Path]:
    """Return an empty file system that cannot be written."""
    (disk := tmp_path / "disk").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], check=False).returncode:
        pytest.skip("only the superuser may mount")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_an_agent_runs_on_a_read_only_disk_and_writes_nothing(
    logs_url: str, processes: Processes, log: Path, no_disk: Path
) -> None:
    append(log, lines(0, 100))
    command = [sys.executable, "-m", "shipper", "--server", logs_url, "--host", "web01"]
    nothing = dict.fromkeys(("HOME", "TMPDIR"), str(no_disk))
    nothing |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    agent = processes.start("agent", [*command, "--file", log], nothing, no_disk)
    wait_for_lines(logs_url, lines(0, 100), agent)
    agent.kill()
    append(log, lines(100, 200))
    agent.start()
    wait_for_lines(logs_url, lines(0, 200), agent)

    assert agent.stop(12) == 0
    assert list(log.parent.iterdir()) == [log]
    assert list(no_disk.iterdir()) == []


def test_a_stop_is_no_trouble_if_the_broker_is_going_too(
    logs_url: str, ship: Ship, log: Path, own_host: str
) -> None:
    append(log, lines(0, 100))
    process = ship(host=own_host)
    wait_for_lines(logs_url, lines(0, 100), process)
    # nobody answers there, as when the broker ends at the same moment
    ask(logs_url, lambda broker: broker.api(f"STREAM.DELETE.{BUCKET}"))

    assert process.stop() == 0
    assert "WARNING" not in process.read_log()


def test_status_without_an_agent_shows_the_brokers_positions_or_one_line_of_error(
    logs_url: str, ship: Ship, log: Path, own_host: str
) -> None:
    append(log, lines(0, 100))
    process = ship(host=own_host)
    wait_for_lines(logs_url, lines(0, 100), process)
    append(log, lines(100, 200))
    wait_for_lines(logs_url, lines(0, 200), process)
    process.kill()
    (snapshot,) = ask(logs_url, partial(saved_positions, host=own_host)).files.values()
    append(log, b"more\n")

    asking = ("status", "--host", own_host, "--server")
    shown, document = run(*asking, logs_url), run(*asking, logs_url, "--json")
    ask(logs_url, lambda broker: broker.api(f"STREAM.DELETE.{BUCKET}"))
    no_bucket, no_broker = (run(*asking, url) for url in (logs_url, "nats://127.0.0.1:1"))

    assert snapshot.offset == 0  # the headers behind it have the rest
    assert f"host {own_host}: not running, saved " in shown.stdout
    (host,) = json.loads(document.stdout)
    (file,) = host["files"]
    assert (file["position_bytes"], file["behind_bytes"]) == (len(lines(0, 200)), 5)
    assert (host["running"], file["path"]) == (False, str(log))
    lacks = (no_bucket, "the stream or its buckets"), (no_broker, "no broker at nats://127")
    for done, text in lacks:
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        runs = f"no agent of {own_host} runs on this machine, and"
        assert done.stderr.startswith(f"logshipper: {runs} {text}")


def test_the_status_of_a_host_that_never_shipped_names_machine_and_broker(
    logs_url: str, own_host: str
) -> None:
    done = run("status", "--host", own_host, "--server", logs_url)

    address = logs_url.rpartition("@")[2].removeprefix("nats://")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"logshipper: no agent of {own_host} runs on this machine, and the broker at "
        f"nats://{address} has no positions of {own_host}: nothing was shipped for it; "
        "check --host and --server, or see `logbroker hosts`\n"
    )
