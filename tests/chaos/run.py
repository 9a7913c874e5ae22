"""One run: a world, its faults, the end in which everything runs dry, and the judgement."""

import errno
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from tests.chaos import evidence
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.faults.fault import CannotStrike
from tests.chaos.flowing import Awaited
from tests.chaos.judging import judged
from tests.chaos.leaks import Leaks
from tests.chaos.order import Order
from tests.chaos.program import Supervisor
from tests.chaos.runlog import Result, RunLog, Struck
from tests.chaos.schedule import FaultKind, Stroke
from tests.chaos.world import World
from tests.support.processes import Processes

__all__ = ["run", "strike"]

_A_FEW_LINES = 0.3  # seconds
_LAST_WORDS = 5.0  # seconds
_START = 300.0  # seconds until all is started, at least: nothing has failed yet
_DISK_FAULTS = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""What a disk answers on which another fault of the stroke is at work just then."""


def run(
    folder: Path,
    order: Order,
    strokes: Iterator[Stroke],
    *,
    follow: Callable[[Mapping[str, Any]], None],
) -> Result:
    """Carry out strokes until there are no more, the order's time is over, or so many faults have struck; then judge.

    Must be called within namespaces of its own (`tests.chaos.one`). `folder` keeps all there is to see; each event is told to
    `follow`, too.
    """
    log = RunLog(folder / "run.jsonl", follow)
    log.tell("began", shape=order.shape.as_json())
    result = Result(order.shape.seed)
    began = time.monotonic()
    (folder / "logs").mkdir()
    leaks = Leaks()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        try:
            world = World.built(folder, order.shape, processes, supervisor)
        except TimeoutError as error:
            result.findings.append(f"nothing was thrown yet: {error}")
        else:
            _carry_out(world, order, strokes, leaks, log, result)
    result.seconds = time.monotonic() - began
    log.tell("done", **result.as_json())
    return result


def _carry_out(
    world: World,
    order: Order,
    strokes: Iterator[Stroke],
    leaks: Leaks,
    log: RunLog,
    result: Result,
) -> None:
    world.operator.tell = log.tell
    with world.operator:
        _try(partial(_under_fire, world, order, strokes, leaks), world, log, result)
        _try(partial(_run_dry, world, order), world, log, result)
    world.supervisor.stop()
    if result.has_passed:
        _try(partial(_look_for_leaks, world, leaks), world, log, result)
    _try(partial(_judge, world), world, log, result)
    if result.has_passed:
        result.find_emptiness(order.shape)
    if not result.has_passed:
        evidence.dump_streams(world)
        evidence.dump_destroyed(world)
        evidence.keep_disks(world)


def _try(act: Callable[[RunLog, Result], None], world: World, log: RunLog, result: Result) -> None:
    try:
        act(log, result)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed, and belongs into the record
        words = str(error) if isinstance(error, TimeoutError | RuntimeError) else repr(error)
        words += f": {error.__cause__!r}" if error.__cause__ else ""
        log.tell("finding", words=words)
        result.findings.append(words)
        evidence.look_around(world)


def _under_fire(
    world: World,
    order: Order,
    strokes: Iterator[Stroke],
    leaks: Leaks,
    log: RunLog,
    result: Result,
) -> None:
    most = inf if order.wanted.most is None else order.wanted.most
    for host in world.hosts:
        host.start_writing()
    _wait_for_flow(world, max(order.flow, _START), log)
    leaks.look()
    began = time.monotonic()
    deadline = began + 60 * (inf if order.minutes is None else order.minutes)
    kinds: set[str] = set()
    while time.monotonic() < deadline and result.faults.total() < most:
        stroke = next(strokes, None)
        if stroke is None:
            break
        log.tell("stroke", number=result.strokes, **stroke.as_json())
        kinds |= result.count(strike(world, stroke, log))
        if stroke.settles:
            _settle(world, order, log, result, kinds)
            leaks.look()
            kinds = set()
        time.sleep(stroke.pause)
    result.writing = time.monotonic() - began


def _settle(world: World, order: Order, log: RunLog, result: Result, kinds: Iterable[str]) -> None:
    try:
        result.flowed(_wait_for_flow(world, order.flow, log), kinds)
    except TimeoutError:
        result.flowed(order.flow, kinds)  # at least
        raise


def _wait_for_flow(world: World, seconds: float, log: RunLog) -> float:
    """Wait until all programs run, and what is written shortly after that was received; return how long that took."""
    began = time.monotonic()
    _wait_for_programs(world, seconds)
    time.sleep(_A_FEW_LINES)
    world.supervisor.wait("lines flow again", Awaited(world).has_come, seconds)
    waited = time.monotonic() - began
    log.tell("flows", waited=round(waited, 2))
    return waited


def _wait_for_programs(world: World, seconds: float) -> None:
    programs = world.supervisor.programs
    world.supervisor.wait(
        "every program runs", lambda: all(one.is_running() for one in programs), seconds
    )


def _run_dry(world: World, order: Order, log: RunLog, result: Result) -> None:
    for host in world.hosts:
        host.stop_writing()
    waited = world.supervisor.wait("all is received", Awaited(world).has_come, 2 * order.flow)
    _wait_for_programs(world, order.flow)
    if world.destroyed:
        time.sleep(_LAST_WORDS)  # what was destroyed may be on its way a second time
    log.tell("dry", waited=round(waited, 2))


def _look_for_leaks(world: World, leaks: Leaks, log: RunLog, result: Result) -> None:
    leaks.at_rest()
    leaks.at_the_end(world)
    result.findings += leaks.findings
    log.tell("leaks", **leaks.as_json())


def _judge(world: World, log: RunLog, result: Result) -> None:
    for host in world.hosts:
        host.stop_writing()
    result.starts = sum(one.process.starts - 1 for one in world.supervisor.programs)
    world.processes.end_all()
    found = judged(world)
    result.verdicts = found.verdicts
    for name, verdict in found.verdicts.items():
        log.tell("verdict", host=name, perfect=verdict.is_perfect, words=str(verdict))
    lost, told = found.audit.size, found.audit.told
    result.destroyed, result.reported = lost, told
    if world.destroyed:
        log.tell("losses", lost=lost, reported=told, unknowable=found.audit.unknowable)
    result.findings += [*found.findings, *world.operator.failures]


def strike(
    world: World, stroke: Stroke, log: RunLog, kinds: Mapping[str, FaultKind] = CATALOGUE
) -> list[Struck]:
    """Carry out a stroke, and return when its last fault has ended; raises what a fault itself failed with."""
    results = [Struck(fault) for fault in stroke.faults]
    threads = [
        threading.Thread(
            target=_do, args=(world, result, log, kinds[result.fault.kind]), name=result.fault.kind
        )
        for result in results
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if result.error:
            raise RuntimeError(f"the fault {result.fault} failed itself") from result.error
    return results


def _do(world: World, result: Struck, log: RunLog, kind: FaultKind) -> None:
    fault = result.fault
    time.sleep(fault.at)
    try:
        end = kind.act(world, random.Random(fault.seed))
        result.struck = True
        log.tell("struck", kind=fault.kind)
        time.sleep(fault.lasts)
        if end:
            end()
            log.tell("ended", kind=fault.kind)
    except CannotStrike as none:
        result.struck = False  # as its end may have seen
        log.tell("not struck", kind=fault.kind, why=str(none))
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits
        if not result.struck and isinstance(error, OSError) and error.errno in _DISK_FAULTS:
            log.tell("not struck", kind=fault.kind, why=str(error))
        else:
            result.error = error
