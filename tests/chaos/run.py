"""One run: a world, its faults, the end in which everything runs dry, and the judgement."""

import errno
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos import evidence
from tests.chaos.fault import FAULTS, CannotStrike, Strike, Stroke
from tests.chaos.judging import judged
from tests.chaos.leaks import Leaks
from tests.chaos.program import Supervisor
from tests.chaos.received import awaited
from tests.chaos.shape import Shape
from tests.chaos.world import World
from tests.support.oracle import Verdict
from tests.support.processes import Processes

_FLOW = 90.0  # seconds within which lines have to flow again; twice that until all is received
_START = 300.0  # seconds until all is started: nothing has failed yet
_A_FEW_LINES = 0.3  # seconds
_DISK_FAULTS = {errno.EIO, errno.EROFS, errno.ENOSPC, errno.EDQUOT}
"""What a disk answers on which another fault of the stroke is at work just then."""
_FEWEST = 0.05  # of the lines that the shape's rate stands for
_ENDS_A_PROGRAM = ("kill-shipper", "kill-broker", "kill-driver", "kill-spark-worker")
_LINES = ("written", "received", "missing", "repeated", "reordered", "torn", "foreign")


@dataclass(slots=True)
class Result:
    """What a run has shown; it has passed when there is no finding."""

    path: Path
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    waits: list[float] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    starts: int = 0
    writing: float = 0.0
    findings: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, event: str, **fields: Any) -> None:
        """Append an event to run.jsonl."""
        told = {"event": event, "at": round(time.monotonic() - self._began, 2), **fields}
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")

    def find(self, words: str) -> None:
        """Note what speaks against the suite."""
        self.tell("finding", words=words)
        self.findings.append(words)

    def find_emptiness(self, shape: Shape) -> None:
        """Add a finding for each reason why this run, had it passed, would have shown nothing."""
        if not self.struck:
            self.find("nothing was hit")
        wanted = int(_FEWEST * shape.rate * self.writing)
        for host, verdict in self.verdicts.items():
            if verdict.written <= wanted:
                self.find(f"{host} wrote {verdict.written} lines, {wanted} would show something")
        killed = sum(self.struck[kind] for kind in _ENDS_A_PROGRAM)
        if self.starts < bool(killed):
            self.find(f"{killed} programs were killed, and none was started again")

    def as_json(self) -> dict[str, Any]:
        """Return what goes into result.json."""
        return {
            "faults": dict(self.struck),
            "not_struck": dict(self.missed),
            "seconds": round(time.monotonic() - self._began, 1),
            "starts": self.starts,
            "waits": [round(wait, 1) for wait in self.waits],
            "lines": {
                name: sum(getattr(verdict, name) for verdict in self.verdicts.values())
                for name in _LINES
            },
            "findings": self.findings,
        }


def run(
    folder: Path,
    shape: Shape,
    minutes: float,
    strokes: Iterator[Stroke],
    say: Callable[[str], None],
) -> Result:
    """Carry out strokes for so many minutes, then judge; each stroke is told to `say`.

    Must be called within namespaces of its own. `folder` keeps all there is to see.
    """
    result = Result(folder / "run.jsonl")
    (folder / "logs").mkdir()
    leaks = Leaks()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        try:
            world = World.built(folder, shape, processes, supervisor)
        except TimeoutError as error:
            result.find(f"nothing was thrown yet: {error}")
        else:
            strike = partial(_under_fire, minutes=minutes, strokes=strokes, leaks=leaks)
            _try(partial(strike, say=say), world, result)
            _try(_run_dry, world, result)
            _conclude(world, leaks, result)
    (folder / "result.json").write_text(json.dumps(result.as_json()), "utf-8")
    return result


def _conclude(world: World, leaks: Leaks, result: Result) -> None:
    world.supervisor.stop()
    if not result.findings:
        _try(partial(_look_for_leaks, leaks=leaks), world, result)
    _try(_judge, world, result)
    if not result.findings:
        result.find_emptiness(world.shape)
    if result.findings:
        evidence.keep_disks(world)


def _try(act: Callable[[World, Result], None], world: World, result: Result) -> None:
    try:
        act(world, result)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run has failed, and belongs into the record
        words = str(error) if isinstance(error, TimeoutError | RuntimeError) else repr(error)
        result.find(words + (f": {error.__cause__!r}" if error.__cause__ else ""))
        evidence.look_around(world)


def _under_fire(
    world: World,
    result: Result,
    *,
    minutes: float,
    strokes: Iterator[Stroke],
    leaks: Leaks,
    say: Callable[[str], None],
) -> None:
    for host in world.hosts:
        host.writing.start()
    _wait_for_flow(world, _START)
    leaks.look()
    began = time.monotonic()
    for number, stroke in enumerate(strokes):
        if time.monotonic() > began + 60 * minutes:
            break
        result.tell("stroke", number=number, **asdict(stroke))
        told = f"{number:4}  {' + '.join(one.fault for one in stroke.strikes)}"
        _strike(world, stroke, result)
        if stroke.settles:
            result.waits.append(_wait_for_flow(world, _FLOW))
            result.tell("flows", waited=result.waits[-1])
            told += f": lines flow after {result.waits[-1]:.1f} s"
            leaks.look()
        say(told)
        time.sleep(stroke.pause)
    result.writing = time.monotonic() - began


def _wait_for_flow(world: World, seconds: float) -> float:
    """Wait until all programs run, and what is written shortly after that was received; return how long that took."""
    began = time.monotonic()
    _wait_for_programs(world, seconds)
    time.sleep(_A_FEW_LINES)
    world.supervisor.wait("lines flow again", partial(next, awaited(world)), seconds)
    return time.monotonic() - began


def _wait_for_programs(world: World, seconds: float) -> None:
    programs = world.supervisor.programs
    world.supervisor.wait(
        "every program runs", lambda: all(one.is_running() for one in programs), seconds
    )


def _run_dry(world: World, result: Result) -> None:
    for host in world.hosts:
        host.writing.stop()
    # what is missing after a finding is no news
    seconds = _FLOW / 3 if result.findings else 2 * _FLOW
    waited = world.supervisor.wait("all is received", partial(next, awaited(world)), seconds)
    _wait_for_programs(world, _FLOW)
    result.tell("dry", waited=round(waited, 2))


def _look_for_leaks(world: World, result: Result, *, leaks: Leaks) -> None:
    leaks.at_rest()
    leaks.at_the_end(world)
    for finding in leaks.findings:
        result.find(finding)


def _judge(world: World, result: Result) -> None:
    for host in world.hosts:
        host.writing.stop()
    result.starts = sum(one.process.starts - 1 for one in world.supervisor.programs)
    world.processes.end_all()
    found = judged(world)
    result.verdicts = found.verdicts
    for name, verdict in found.verdicts.items():
        result.tell("verdict", host=name, perfect=verdict.is_perfect, words=str(verdict))
    for finding in found.findings:
        result.find(finding)


def _strike(world: World, stroke: Stroke, result: Result) -> None:
    """Carry out a stroke, and return when its last fault was undone; raises what a fault itself failed with."""
    errors: list[tuple[Strike, BaseException]] = []
    threads = [
        threading.Thread(target=_do, args=(world, one, result, errors), name=one.fault)
        for one in stroke.strikes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, error in errors:
        raise RuntimeError(f"the fault {one} failed itself") from error


def _do(
    world: World, one: Strike, result: Result, errors: list[tuple[Strike, BaseException]]
) -> None:
    has_struck = False
    time.sleep(one.at)
    try:
        lasting = FAULTS[one.fault].act(world, random.Random(one.seed)) or iter(())
        next(lasting, None)
        has_struck = True
        result.tell("struck", fault=one.fault)
        time.sleep(one.lasts)
        next(lasting, None)
        result.tell("over", fault=one.fault)
        result.struck[one.fault] += 1
    except CannotStrike as none:  # as what undoes it may have seen
        result.missed[one.fault] += 1
        result.tell("not struck", fault=one.fault, why=str(none))
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits
        if not has_struck and isinstance(error, OSError) and error.errno in _DISK_FAULTS:
            result.missed[one.fault] += 1
            result.tell("not struck", fault=one.fault, why=str(error))
        else:
            errors.append((one, error))
