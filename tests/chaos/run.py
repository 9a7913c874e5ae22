"""One run: a world, its faults, the end in which everything runs dry, and the judgement.

A run that fails leaves what vanishes with its namespaces, so that one can see why:

folder/processes.txt    what ran when it failed, with states and where the kernel has them waiting
folder/kept             the programs' states, received files, sources, log files, stores;
                        `logbroker run --store-dir` on a store, and `logbroker get`, show messages
"""

import errno
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.chaos import tabled
from tests.chaos.fault import FAULTS, CannotStrike, Strike, Stroke
from tests.chaos.leaks import Leaks
from tests.chaos.program import Supervisor
from tests.chaos.received import awaited, judged
from tests.chaos.shape import Shape
from tests.chaos.world import World
from tests.support.oracle import Verdict
from tests.support.processes import Processes

_FLOW = 90.0  # seconds within which lines have to flow again; twice that until all is received
_FLOW_ON_SPARK = 240.0  # a cluster after a power cut: master, workers, executors, one after another
_START = 300.0  # seconds until all is started: nothing has failed yet
_A_FEW_LINES = 0.3  # seconds
_DISK_FAULTS = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT}
"""Answers of a disk that another fault of the stroke has filled, broken or taken off."""
_FEWEST = 0.05  # of the lines that the shape's rate means
_ENDS_A_PROGRAM = ("kill-shipper", "kill-broker", "kill-driver", "kill-spark-worker", "kill-table")
_KEPT = (
    *("table/logs", "central/state", "central/out", "hosts/*/logs", "brokers/*/store", "written"),
    "journals",
)
_LINES = ("written", "received", "missing", "repeated", "reordered", "torn", "foreign")


@dataclass(slots=True)
class Result:
    """What a run has shown; it has passed when there is no finding."""

    path: Path
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    followed: Mapping[str, Verdict] = field(default_factory=dict)
    tabled: dict[str, Verdict] = field(default_factory=dict)
    starts: int = 0
    writing: float = 0.0
    findings: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, event: str, **fields: Any) -> None:
        told = {"event": event, "at": round(time.monotonic() - self._began, 2), **fields}
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")

    def find(self, text: str) -> None:
        self.record("finding", text=text)
        self.findings.append(text)

    def find_emptiness(self, shape: Shape) -> None:
        """Add a finding for each reason why this run, had it passed, would have shown nothing."""
        if not self.struck:
            self.find("nothing was hit")
        wanted = int(_FEWEST * shape.rate * self.writing)
        for host, verdict in self.verdicts.items():
            if verdict.written <= wanted:
                self.find(f"{host} wrote {verdict.written} lines, {wanted} would show something")
        if not any(one.received for one in self.followed.values()):
            self.find("nobody followed received files")
        if shape.table and not any(one.received for one in self.tabled.values()):
            self.find("nothing is in the table")
        killed = sum(self.struck[kind] for kind in _ENDS_A_PROGRAM)
        if self.starts < bool(killed):
            self.find(f"{killed} programs were killed, and none was started again")

    def as_json(self) -> dict[str, Any]:
        return {
            "faults": dict(self.struck),
            "not_struck": dict(self.missed),
            "seconds": round(time.monotonic() - self._began, 1),
            "starts": self.starts,
            "waits": [round(wait, 1) for wait in self.waits],
            "lines": _count_lines(self.verdicts),
            "followed": _count_lines(self.followed),
            "tabled": _count_lines(self.tabled),
            "findings": self.findings,
        }


def _count_lines(verdicts: Mapping[str, Verdict]) -> dict[str, int]:
    return {name: sum(getattr(one, name) for one in verdicts.values()) for name in _LINES}


def run(folder: Path, shape: Shape, minutes: float, strokes: Iterator[Stroke]) -> Result:
    """Carry out strokes for so many minutes, then judge; `folder` keeps all there is to see."""
    result = Result(folder / "run.jsonl")
    (folder / "logs").mkdir()
    leaks = Leaks()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        try:
            world = World.built(folder, shape, processes, supervisor)
        except TimeoutError as error:
            result.find(f"nothing was thrown yet: {error}")
        else:
            _Run(world, result, leaks).carry_out(strokes, minutes)
    (folder / "result.json").write_text(json.dumps(result.as_json()), "utf-8")
    return result


@dataclass(frozen=True, slots=True)
class _Run:
    world: World
    result: Result
    leaks: Leaks

    @property
    def patience(self) -> float:
        """Seconds within which lines have to flow again after a stroke."""
        return _FLOW_ON_SPARK if self.world.spark else _FLOW

    def carry_out(self, strokes: Iterator[Stroke], minutes: float) -> None:
        self._try(partial(self._strike_all, strokes, minutes))
        self._try(self._run_dry)
        self.world.supervisor.stop()
        if not self.result.findings:
            self._try(self._find_leaks)
        self._try(self._judge)
        self._try(self._judge_followed)
        self._try(self._judge_table)
        if not self.result.findings:
            self.result.find_emptiness(self.world.shape)
        if self.result.findings:
            self._keep_disks()

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - any error fails the run and is recorded
            text = str(error) if isinstance(error, TimeoutError | RuntimeError) else repr(error)
            self.result.find(text + (f": {error.__cause__!r}" if error.__cause__ else ""))
            self._keep_processes()

    def _strike_all(self, strokes: Iterator[Stroke], minutes: float) -> None:
        for host in self.world.hosts:
            host.writing.start()
        self.world.tails.start()
        self._wait_for_flow(_START)
        began = time.monotonic()
        for number, stroke in enumerate(strokes):
            if time.monotonic() > began + 60 * minutes:
                break
            self.result.record("stroke", number=number, **asdict(stroke))
            told = f"{number:4}  {' + '.join(one.fault for one in stroke.strikes)}"
            self._strike(stroke)
            if stroke.settles:
                self.result.waits.append(self._wait_for_flow(self.patience))
                self.result.record("flows", waited=self.result.waits[-1])
                told += f": lines flow after {self.result.waits[-1]:.1f} s"
            click.echo(told)
            time.sleep(stroke.pause)
        self.result.writing = time.monotonic() - began

    def _strike(self, stroke: Stroke) -> None:
        """Carry out a stroke until its last fault is undone; raises what a fault failed with."""
        with ThreadPoolExecutor(len(stroke.strikes)) as pool:
            struck = [(one, pool.submit(self._act, one)) for one in stroke.strikes]
        for one, done in struck:
            if error := done.exception():
                raise RuntimeError(f"the fault {one} failed itself") from error

    def _act(self, one: Strike) -> None:
        result, has_struck = self.result, False
        time.sleep(one.at)
        try:
            lasting = FAULTS[one.fault].act(self.world, random.Random(one.seed)) or iter(())
            next(lasting, None)
            has_struck = True
            result.record("struck", fault=one.fault)
            time.sleep(one.lasts)
            next(lasting, None)
            result.record("over", fault=one.fault)
            result.struck[one.fault] += 1
        except (CannotStrike, OSError) as none:  # as what undoes it may have seen
            if isinstance(none, OSError) and (has_struck or none.errno not in _DISK_FAULTS):
                raise
            result.missed[one.fault] += 1
            result.record("not struck", fault=one.fault, why=str(none))

    def _wait_for_flow(self, seconds: float) -> float:
        """Wait until all run and new lines are received; return the seconds it took."""
        began = time.monotonic()
        self._wait_for_programs(seconds)
        time.sleep(_A_FEW_LINES)
        self._wait_for_lines("lines flow again", seconds)
        took = time.monotonic() - began
        self.world.tails.go_on()
        self.leaks.inspect()
        return took

    def _wait_for_lines(self, what: str, seconds: float) -> None:
        """Wait until all is received, and then until the table has it: its Spark starts longer."""
        are_received = partial(next, awaited(self.world))
        self.world.supervisor.wait(what, are_received, seconds)
        if self.world.tables:
            has_all = partial(next, tabled.reached(self.world))
            self.world.supervisor.wait(f"{what}, into the table", has_all, 2 * seconds)

    def _wait_for_programs(self, seconds: float) -> None:
        programs = self.world.supervisor.programs
        all_run = lambda: all(one.is_running() for one in programs)  # noqa: E731
        self.world.supervisor.wait("every program runs", all_run, seconds)

    def _run_dry(self) -> None:
        for host in self.world.hosts:
            host.writing.stop()
        # what is missing after a finding is no news
        seconds = self.patience / 3 if self.result.findings else 2 * self.patience
        began = time.monotonic()
        self._wait_for_lines("all is received", seconds)
        self.result.record("dry", waited=round(time.monotonic() - began, 2))
        self._wait_for_programs(_FLOW)
        self.world.tails.go_on()

    def _find_leaks(self) -> None:
        for finding in self.leaks.judge(self.world):
            self.result.find(finding)

    def _judge(self) -> None:
        for host in self.world.hosts:
            host.writing.stop()
        programs = self.world.supervisor.programs
        self.result.starts = sum(one.process.starts - 1 for one in programs)
        self.world.processes.end_all()
        self.result.verdicts, findings = judged(self.world)
        self._record(self.result.verdicts, findings)

    def _judge_table(self) -> None:
        if self.world.tables:
            self.result.tabled, findings = tabled.judged(self.world)
            self._record(self.result.tabled, findings)

    def _record(self, verdicts: Mapping[str, Verdict], findings: Iterable[str]) -> None:
        for name, verdict in verdicts.items():
            text = str(verdict)
            self.result.record("verdict", host=name, perfect=verdict.is_perfect, text=text)
        for finding in findings:
            self.result.find(finding)

    def _judge_followed(self) -> None:
        self.result.followed = self.world.tails.stop()
        findings = [
            f"{name}: {one}" for name, one in self.result.followed.items() if not one.is_perfect
        ]
        for finding in (*self.world.tails.findings, *findings):
            self.result.find(f"read while it was written: {finding}")

    def _keep_processes(self) -> None:
        with (self.world.folder / "processes.txt").open("wb") as file:
            command = ("ps", "-eLo", "pid,ppid,tid,stat,wchan:24,rss,args")
            subprocess.run(command, stdout=file, stderr=file, timeout=30, check=False)

    def _keep_disks(self) -> None:
        """Copy the disks that vanish, and what was written, as far as they can be read."""
        folder = self.world.folder
        (folder / "kept").mkdir()
        for top in (found for part in _KEPT for found in folder.glob(part)):
            command = ("cp", "-a", "--parents", "--", top.relative_to(folder), "kept")
            subprocess.run(command, cwd=folder, check=False, capture_output=True)
