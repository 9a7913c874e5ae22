"""One run of a peer: like `tests.chaos.run`, but for one who may lose lines, which ends no run: it is counted.

Lines flow again when one of each log that was written after a fault has arrived; that all have, may never be.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.oracle import judge
from bench.processes import Processes
from bench.received import read_received
from tests.chaos.order import Order
from tests.chaos.peers.tail import Tail, numbers_in
from tests.chaos.peers.world import PeerWorld
from tests.chaos.program import Supervisor
from tests.chaos.result import Result
from tests.chaos.runlog import RunLog
from tests.chaos.schedule import Stroke
from tests.chaos.striking import strike
from tests.chaos.world import World

__all__ = ["PeerBounds", "run_peer"]

_A_FEW_LINES = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class PeerBounds:
    """In seconds: `calm` before the first stroke, `flow` until lines flow again at most.

    At the end, nothing more is expected after `quiet`, or after `dry` whatever comes.
    """

    calm: float = 5.0
    flow: float = 60.0
    quiet: float = 15.0
    dry: float = 120.0


def run_peer(
    folder: Path, order: Order, strokes: Iterator[Stroke], peers: PeerWorld, bounds: PeerBounds
) -> Result:
    """Carry out strokes until there are no more, or as many faults have struck as the order wants; then judge, within namespaces of its own; what is lost, repeated and so on is in the verdicts.

    A finding is a host whose lines did not flow again, or with a verdict that is not perfect.
    """
    log = RunLog(folder / "run.jsonl")
    log.tell("began", shape=order.shape.as_json(), peer=peers.peer.name)
    result = Result(order.shape.seed)
    began = time.monotonic()
    (folder / "logs").mkdir()
    with Processes(folder / "logs") as processes, Supervisor() as supervisor:
        world = peers.built(folder, order.shape, processes, supervisor)
        for host in world.hosts:
            host.start_writing()
        try:
            _Fire(world, log, result, bounds).stand(strokes, order.wanted.most)
        finally:
            for host in world.hosts:
                host.stop_writing()
        _run_dry(world, log, bounds)
        result.starts = sum(one.process.starts - 1 for one in supervisor.programs)
        supervisor.stop()
        processes.end_all()
        _judge(world, log, result)
    result.seconds = time.monotonic() - began
    log.tell("done", **result.as_json())
    return result


class _Fire:
    """Strokes upon a world, one after the other."""

    def __init__(self, world: World, log: RunLog, result: Result, bounds: PeerBounds) -> None:
        self._world = world
        self._log = log
        self._result = result
        self._bounds = bounds
        self._tails = {host.name: Tail(world.output / f"{host.name}.log") for host in world.hosts}

    def stand(self, strokes: Iterator[Stroke], most: int | None) -> None:
        """Carry them out until `most` faults have struck."""
        result = self._result
        began = time.monotonic()
        kinds: set[str] = set()
        self._wait_for_flow(kinds)
        time.sleep(self._bounds.calm)
        while most is None or result.faults.total() < most:
            stroke = next(strokes, None)
            if stroke is None:
                break
            self._log.tell("stroke", number=result.strokes, **stroke.as_json())
            for struck in strike(self._world, stroke, self._log):
                (result.faults if struck.struck else result.not_struck)[struck.fault.kind] += 1
                kinds |= {struck.fault.kind} if struck.struck else set()
            result.strokes += 1
            if stroke.settles:
                self._wait_for_flow(kinds)
                kinds = set()
            time.sleep(stroke.pause)
        result.writing = time.monotonic() - began

    def _wait_for_flow(self, kinds: set[str]) -> None:
        time.sleep(_A_FEW_LINES)
        written = {host.name: numbers_in(b"".join(host.sources())) for host in self._world.hosts}

        def late() -> list[str]:
            return [host for host, numbers in written.items() if not self._has(host, numbers)]

        try:
            waited = self._world.supervisor.wait(
                "lines flow again", lambda: not late(), self._bounds.flow
            )
        except TimeoutError as error:
            self._result.findings.append(f"{error}: {', '.join(late())}")
            self._log.tell("does not flow", hosts=late())
            return
        self._result.flowed(_A_FEW_LINES + waited, kinds)
        self._log.tell("flows", waited=round(waited, 2))

    def _has(self, host: str, numbers: dict[bytes, int]) -> bool:
        received = self._tails[host].read()
        return all(received.get(tag, -1) >= number for tag, number in numbers.items())


def _run_dry(world: World, log: RunLog, bounds: PeerBounds) -> None:
    """Wait until nothing comes any more; what is all there needs no waiting."""
    began = changed = time.monotonic()
    sizes: dict[str, int] = {}
    while time.monotonic() - changed < bounds.quiet and time.monotonic() - began < bounds.dry:
        if (now := world.received.sizes()) != sizes:
            sizes, changed = now, time.monotonic()
        time.sleep(0.2)
    log.tell("dry", waited=round(changed - began, 2))


def _judge(world: World, log: RunLog, result: Result) -> None:
    for host in world.hosts:
        verdict = judge(host.sources(), read_received(world.output, host.name))
        result.verdicts[host.name] = verdict
        log.tell("verdict", host=host.name, perfect=verdict.is_perfect, words=str(verdict))
        if not verdict.is_perfect:
            result.findings.append(f"{host.name}: {verdict}")
