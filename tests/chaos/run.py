"""One run: a world, its faults, the end in which everything runs dry, and the judgement."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.oracle import Verdict, judge
from bench.processes import Processes
from bench.received import read_received
from tests.chaos.program import Supervisor
from tests.chaos.runlog import RunLog
from tests.chaos.schedule import Stroke
from tests.chaos.shape import Shape
from tests.chaos.striking import strike
from tests.chaos.world import World

__all__ = ["Bounds", "Result", "run"]


_A_FEW_LINES = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds: `flow` until lines flow again after a fault, `dry` until all is received."""

    flow: float = 90.0
    dry: float = 180.0


@dataclass(slots=True)
class Result:
    """What a run has shown; it has passed when there is no finding."""

    seed: int
    strokes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    not_struck: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the run log and the record."""
        return {
            "seed": self.seed,
            "strokes": self.strokes,
            "faults": dict(self.faults),
            "not_struck": dict(self.not_struck),
            "seconds": round(self.seconds, 1),
            "longest_wait": round(max(self.waits, default=0.0), 1),
            "lines": sum(verdict.written for verdict in self.verdicts.values()),
            "findings": self.findings,
        }


def run(
    folder: Path,
    shape: Shape,
    strokes: Iterator[Stroke] | Sequence[Stroke],
    *,
    minutes: float = float("inf"),
    faults: float = float("inf"),
    bounds: Bounds = Bounds(),
) -> Result:
    """Carry out strokes until there are no more, the time is over, or so many faults have struck; then judge.

    Must be called within namespaces of its own (`tests.chaos.apart`). `folder` must be empty; it keeps all there is to see.
    """
    log = RunLog(folder / "run.jsonl")
    log.tell("began", shape=shape.as_json())
    result = Result(shape.seed)
    began = time.monotonic()
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        world = World.built(folder, shape, processes, supervisor)
        try:
            _under_fire(world, strokes, log, result, began + 60 * minutes, faults, bounds)
            _run_dry(world, log, result, bounds)
        except (TimeoutError, RuntimeError) as error:
            result.findings.append(str(error))
        finally:
            _judge(world, log, result)
    result.seconds = time.monotonic() - began
    log.tell("done", **result.as_json())
    return result


def _under_fire(
    world: World,
    strokes: Iterator[Stroke] | Sequence[Stroke],
    log: RunLog,
    result: Result,
    deadline: float,
    faults: float,
    bounds: Bounds,
) -> None:
    for host in world.hosts:
        host.start_writing()
    _wait_for_flow(world, log, result, bounds)
    for stroke in itertools.chain(strokes):
        if time.monotonic() > deadline or result.faults.total() >= faults:
            return
        log.tell("stroke", number=result.strokes, **stroke.as_json())
        for struck in strike(world, stroke, log):
            (result.faults if struck.struck else result.not_struck)[struck.fault.kind] += 1
        result.strokes += 1
        if stroke.settles:
            _wait_for_flow(world, log, result, bounds)
        time.sleep(stroke.pause)


def _wait_for_flow(world: World, log: RunLog, result: Result, bounds: Bounds) -> None:
    """Wait until everything that is written by now has been received."""
    written = {host.name: host.written() for host in world.hosts}
    waited = world.supervisor.wait("lines flow again", lambda: _has(world, written), bounds.flow)
    result.waits.append(waited)
    log.tell("flows", waited=round(waited, 2))


def _run_dry(world: World, log: RunLog, result: Result, bounds: Bounds) -> None:
    for host in world.hosts:
        host.stop_writing()
    written = {host.name: host.written() for host in world.hosts}
    waited = world.supervisor.wait("all is received", lambda: _has(world, written), bounds.dry)
    log.tell("dry", waited=round(waited, 2))


def _has(world: World, written: dict[str, int]) -> bool:
    sizes = world.received.sizes()
    return all(sizes.get(host, 0) >= size for host, size in written.items())


def _judge(world: World, log: RunLog, result: Result) -> None:
    for host in world.hosts:
        host.stop_writing()
    world.supervisor.stop()
    world.processes.end_all()
    for host in world.hosts:
        verdict = judge(host.sources(), read_received(world.output, host.name))
        result.verdicts[host.name] = verdict
        log.tell("verdict", host=host.name, perfect=verdict.is_perfect, words=str(verdict))
        if not verdict.is_perfect:
            result.findings.append(f"{host.name}: {verdict}")
