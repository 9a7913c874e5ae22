"""Real shippers and a real receiver killed at every named point under traffic: each is reached, and costs no line."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.app.faults import VARIABLE
from broker.client.connection import Connection
from receiver.faults import IN_BATCH, IN_DRIVER, IN_TURN, IN_UNDO
from receiver.storage.tables import GAP_REPORTS
from tests.chaos.program import Program, Supervisor
from tests.chaos.received import Received
from tests.receiver.partition import ask, ours
from tests.shipper import points as shipper_points
from tests.support.oracle import Verdict, judge
from tests.support.processes import Processes
from tests.support.received import read_received
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [
    pytest.mark.journey,
    pytest.mark.nats,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.long,  # each program's own tests kill it at each of its points
]

CALM, KILLED = "calm01", "killed01"
PATIENCE = 120.0  # seconds
_AT_THE_END_OF_A_STAY = {"reported", "heard", *IN_TURN}


def nothing() -> None:
    """Wait for the traffic to bring it about."""


@dataclass
class Stage:
    """One of each program, looked after, and what was published by hand beside their traffic."""

    suite: Suite
    supervisor: Supervisor
    receiver: Program
    shipper: Program
    traffic: dict[str, Traffic]
    sent: dict[str, list[bytes]] = field(default_factory=dict)
    gaps: int = 0

    def verdict(self, host: str) -> Verdict:
        """Judge all that was written on a host."""
        written = list(self.traffic[host].written.values())
        return judge(written, self.received(host))

    def received(self, host: str) -> bytes:
        """Return all that was received of a host, as soon as none of its files is just being exchanged."""
        found: list[bytes] = []

        def is_read() -> bool:
            with suppress(ValueError, FileNotFoundError):
                found.append(read_received(self.suite.output, host))
            return bool(found)

        self.supervisor.wait(f"what came of {host} can be read", is_read, PATIENCE)
        return found[0]

    def arm(self, program: str, *points: str) -> list[Path]:
        """Have whichever process of a program comes to one of the points die there."""
        files = [self.suite.folder / "faults" / program / point for point in points]
        for file in files:
            file.touch()
        return files

    def reached(self, armed: list[Path], nudge: Callable[[], None] = nothing) -> None:
        """Wait until somebody has died at each point; nudge every second until then."""
        nudged = float("-inf")

        def are_reached() -> bool:
            nonlocal nudged
            if not any(file.exists() for file in armed):
                return True
            if time.monotonic() - nudged > 1:
                nudged = time.monotonic()
                nudge()
            return False

        names = ", ".join(file.name for file in armed)
        self.supervisor.wait(f"{names} is reached", are_reached, PATIENCE)

    def flows(self, *hosts: str) -> None:
        """Wait until all that these hosts have written by now is received, and what was published by hand."""
        received = Received(self.suite.output)
        written = {host: sum(map(len, self.traffic[host].written.values())) for host in hosts}
        wanted = {host: max(1, size) for host, size in written.items()}
        wanted |= {host: sum(map(len, blocks)) for host, blocks in self.sent.items()}

        def does_it() -> bool:
            sizes = received.sizes()
            return all(sizes.get(host, 0) >= size for host, size in wanted.items())

        self.supervisor.wait("lines flow", does_it, PATIENCE)

    def publish(self, *messages: tuple[str, bytes, dict[str, str]]) -> None:
        """Publish blocks, in order for each host."""

        async def store(connection: Connection) -> None:
            stored = (connection.ask(*message, patience=PATIENCE) for message in messages)
            await asyncio.gather(*stored)

        ask(self.suite.url, store)
        for subject, payload, _ in messages:
            self.sent.setdefault(subject.removeprefix("logs.p0."), []).append(payload)

    def leave_a_gap(self) -> None:
        if not self.gaps:  # what comes first of a file leaves none
            self.publish(ours("gaps02", "a", 0, b"first\n"))
        self.gaps += 1
        line = b"after a gap %d\n" % self.gaps
        self.publish(ours("gaps02", "a", 1000 * self.gaps, line))

    def ask_for_a_turn(self) -> None:
        process = self.receiver.process
        with suppress(OSError):  # it has just died
            if process.catches(signal.SIGUSR1):  # or it would end by it, which is no news
                os.kill(process.pid, signal.SIGUSR1)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Processes(tmp_path) as processes, Supervisor() as supervisor:
        suite = Suite(tmp_path, processes, partitions=2)
        suite.start_broker()
        (tmp_path / "receiver.toml").touch()
        where: tuple[str, ...] = ("--server", suite.url)
        receiver: list[str | Path] = ["--partition", "all", *where]
        receiver += ["--config", tmp_path / "receiver.toml"]
        receiver += ["--output", suite.output, "--state-dir", tmp_path / "state" / "receiver"]
        receiver += ["--rotate-size", "20kB", "--compress", "zstd"]
        files = {host: tmp_path / "hosts" / host / "app.log" for host in (CALM, KILLED)}
        victim: list[str | Path] = ["--file", files[KILLED], "--host", KILLED, *where]
        programs = {}
        for role, words in (("receiver", receiver), ("shipper", victim)):
            faults = tmp_path / "faults" / role
            faults.mkdir(parents=True)
            program = [Path(sys.executable).with_name(f"log{role}"), *words]
            started = processes.start(role, program, {VARIABLE: str(faults)})
            programs[role] = supervisor.take(started, role)
        suite.start_shipper(CALM, [files[CALM]])
        with ExitStack() as writing:
            traffic = {
                host: writing.enter_context(Traffic([file], 100)) for host, file in files.items()
            }
            yield Stage(suite, supervisor, programs["receiver"], programs["shipper"], traffic)


def test_whatever_point_it_is_killed_at_no_line_is_lost_repeated_or_reordered(
    stage: Stage,
) -> None:
    stage.flows(CALM, KILLED)

    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(kill_shipper, stage)
        kill_tasks(stage)
        kill_driver(stage)
        killing.result()
    for traffic in stage.traffic.values():
        traffic.stop()
    stage.flows(CALM, KILLED)
    verdicts = {host: stage.verdict(host) for host in (CALM, KILLED)}
    by_hand = {host: stage.received(host) for host in stage.sent}
    reports = stage.suite.output.glob(GAP_REPORTS)
    told = [line for report in reports for line in report.read_text("utf-8").splitlines()]
    prune(stage)

    assert {host: str(v) for host, v in verdicts.items() if not v.is_perfect} == {}
    assert by_hand == {host: b"".join(blocks) for host, blocks in stage.sent.items()}
    assert len(told) == stage.gaps
    assert {ending.code for ending in stage.shipper.endings} == {-signal.SIGKILL}
    assert {ending.code for ending in stage.receiver.endings} == {-signal.SIGKILL}


def kill_shipper(stage: Stage) -> None:
    for point in shipper_points.POINTS:
        if point in shipper_points.IN_MOVE:
            continue
        armed = stage.arm("shipper", point)
        if point in {"claimed", "rebuilt"}:  # at a start
            stage.shipper.process.kill()
        stage.reached(armed)


def kill_tasks(stage: Stage) -> None:
    for point in (*IN_BATCH, *IN_UNDO, *IN_TURN):
        # what is not committed is undone by the next attempt
        armed = stage.arm("receiver", point, *(["stored"] if point in IN_UNDO else []))
        if point == "stored":
            stage.leave_a_gap()
        is_last = point in _AT_THE_END_OF_A_STAY
        stage.reached(armed, stage.ask_for_a_turn if is_last else nothing)
        stage.flows(CALM)


def kill_driver(stage: Stage) -> None:
    points = [point for point in IN_DRIVER if point != "pruned"]
    for armed in stage.arm("receiver", *points):
        stage.reached([armed], stage.ask_for_a_turn)
    stage.flows(CALM)


def prune(stage: Stage) -> None:
    """Have all but the newest of the closed files removed, and the driver killed over the first of them."""
    armed = stage.arm("receiver", "pruned")
    before = {host: stage.received(host) for host in (CALM, KILLED)}
    (stage.suite.folder / "receiver.toml").write_text("keep = 1\n", "utf-8")
    stage.receiver.process.hang_up()
    stage.reached(armed, stage.ask_for_a_turn)

    def are_pruned() -> bool:
        # besides the one that is kept, one that the last batch closed may be needed by an undo: that is not packed yet
        closed = [len(list(stage.suite.output.glob(f"{host}.log.*"))) for host in before]
        packed = [len(list(stage.suite.output.glob(f"{host}.log.*.zst"))) for host in before]
        return max(packed) <= 1 and max(closed) <= 2

    stage.supervisor.wait("closed files are removed", are_pruned, PATIENCE)
    for host, lines in before.items():
        assert lines.endswith(stage.received(host))
