"""One run: a world, its faults, the end in which everything runs dry, and the judgement."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from bench.oracle import judge
from bench.processes import Processes
from bench.received import read_received
from tests.chaos.order import Order
from tests.chaos.program import Supervisor
from tests.chaos.result import Result
from tests.chaos.runlog import RunLog
from tests.chaos.schedule import Stroke
from tests.chaos.striking import strike
from tests.chaos.world import World

__all__ = ["Bounds", "run"]


_A_FEW_LINES = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long things may take, in seconds: `flow` until lines flow again after a fault, `dry` until all is received."""

    flow: float = 90.0
    dry: float = 180.0


def run(
    folder: Path,
    order: Order,
    strokes: Iterator[Stroke],
    *,
    follow: Callable[[Mapping[str, Any]], None],
    bounds: Bounds = Bounds(),
) -> Result:
    """Carry out strokes until there are no more, the order's time is over, or so many faults have struck; then judge.

    Must be called within namespaces of its own (`tests.chaos.apart`). `folder` keeps all there is to see; each event is told to
    `follow`, too. `schedule.json` has the strokes that were carried out, as an order.
    """
    log = RunLog(folder / "run.jsonl", follow)
    log.tell("began", shape=order.shape.as_json())
    result = Result(order.shape.seed)
    began = time.monotonic()
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        world = World.built(folder, order.shape, processes, supervisor)
        try:
            _under_fire(world, order, _noted(strokes, order, folder), log, result, bounds)
            _run_dry(world, log, result, bounds)
        except (TimeoutError, RuntimeError) as error:
            result.findings.append(str(error))
        finally:
            _judge(world, log, result)
    if result.has_passed:
        result.find_emptiness(order.shape)
    result.seconds = time.monotonic() - began
    log.tell("done", **result.as_json())
    return result


def _noted(strokes: Iterator[Stroke], order: Order, folder: Path) -> Iterator[Stroke]:
    done: list[Stroke] = []
    for stroke in strokes:
        done.append(stroke)
        order.with_strokes(done).write(folder / "schedule.json")
        yield stroke


def _under_fire(
    world: World,
    order: Order,
    strokes: Iterator[Stroke],
    log: RunLog,
    result: Result,
    bounds: Bounds,
) -> None:
    most = inf if order.wanted.most is None else order.wanted.most
    for host in world.hosts:
        host.start_writing()
    _wait_for_flow(world, log, result, bounds, ())
    began = time.monotonic()
    deadline = began + 60 * (inf if order.minutes is None else order.minutes)
    kinds: set[str] = set()
    while time.monotonic() < deadline and result.faults.total() < most:
        stroke = next(strokes, None)
        if stroke is None:
            break
        log.tell("stroke", number=result.strokes, **stroke.as_json())
        for struck in strike(world, stroke, log):
            (result.faults if struck.struck else result.not_struck)[struck.fault.kind] += 1
            kinds |= {struck.fault.kind} if struck.struck else set()
        result.strokes += 1
        if stroke.settles:
            _wait_for_flow(world, log, result, bounds, kinds)
            kinds = set()
        time.sleep(stroke.pause)
    result.writing = time.monotonic() - began


def _wait_for_flow(
    world: World, log: RunLog, result: Result, bounds: Bounds, kinds: Iterable[str]
) -> None:
    """Wait until everything that is written shortly after now has been received."""
    time.sleep(_A_FEW_LINES)
    written = {host.name: host.written() for host in world.hosts}
    waited = _A_FEW_LINES + world.supervisor.wait(
        "lines flow again", lambda: _has(world, written), bounds.flow
    )
    result.flowed(waited, kinds)
    log.tell("flows", waited=round(waited, 2))


def _run_dry(world: World, log: RunLog, result: Result, bounds: Bounds) -> None:
    for host in world.hosts:
        host.stop_writing()
    written = {host.name: host.written() for host in world.hosts}
    waited = world.supervisor.wait("all is received", lambda: _has(world, written), bounds.dry)
    log.tell("dry", waited=round(waited, 2))
    programs = world.supervisor.programs
    world.supervisor.wait(
        "every program runs", lambda: all(one.is_running() for one in programs), bounds.flow
    )
    result.starts = sum(one.process.starts - 1 for one in programs)


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
