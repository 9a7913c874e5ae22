"""Measure what a table costs beside a receiver while a fleet writes, and when lines are in it."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars

from bench.cpu import process_seconds
from bench.expected import added
from bench.field.logship import Logship
from bench.field.system import System
from bench.fleet import BEGIN, PARTITIONS, end_hosts, latencies, read_rounds, sent_by, start_hosts
from bench.fleet_wire import Plan, Round, host_name
from bench.trial import Outcome
from nats_logship.app.files import write_atomic
from tests.support.oracle import Verdict, judge
from tests.support.processes import Process, Processes, wait_until

_SAMPLE = 0.5  # seconds: a Python worker of Spark lives for a minute at least
_PATIENCE = 240.0  # seconds
_ROUND = 60.0  # seconds: its default


class _Account:
    """The processor time of programs with everything that they start, by frequent samples."""

    def __init__(self, programs: Mapping[str, Process]) -> None:
        self._programs = programs
        self._used: dict[tuple[str, int], float] = {}

    def sample(self) -> None:
        for name, program in self._programs.items():
            for pid in program.tree():
                try:
                    self._used[name, pid] = process_seconds(pid)
                except OSError:
                    continue

    def seconds(self) -> dict[str, float]:
        self.sample()
        return {
            name: sum(used for (of, _), used in self._used.items() if of == name)
            for name in self._programs
        }

    async def charge(self, begin: float, end: float) -> dict[str, float]:
        """Return the user and system time of each program in % of a core, in such a time."""
        before = dict[str, float]()
        while time.monotonic() < end:
            await asyncio.sleep(_SAMPLE)
            self.sample()
            if not before and time.monotonic() >= begin:
                before = self.seconds()
        spent = {name: used - before[name] for name, used in self.seconds().items()}
        return {f"CPU % {name}": 100 * used / (end - begin) for name, used in spent.items()}


def measure_live(_system: System, folder: Path, hosts: int, rate: float, seconds: float) -> Outcome:
    """Have hosts write while a receiver and a table take their lines, in an empty folder.

    The first round is not counted. Raises TookTooLong, ProgramDied.
    """
    table = folder / "table"
    with Processes(folder) as processes:
        staged = Logship(partitions=PARTITIONS).stage(folder, processes)
        suite = staged.suite
        arguments = ["table", "--server", suite.url, "--table", str(table)]
        writer = suite.start_program("logreceiver", "table", arguments)
        wait_until("it writes", lambda: "writing table" in writer.read_log(), 120, [writer])
        port = int(suite.url.rpartition(":")[2])
        plan = Plan("logship", port, 0, hosts, PARTITIONS, rate, _ROUND + seconds)
        generators = start_hosts(processes, folder, plan)
        account = _Account({**staged.centre, "table": writer})
        begin = time.monotonic() + 1
        write_atomic(folder / BEGIN, str(begin), 0o600)
        costs = asyncio.run(account.charge(begin + _ROUND, begin + _ROUND + seconds))
        for one in generators:
            end_hosts(one, _PATIENCE)
        rounds = read_rounds(folder)
        last = max(sequence for _, sequence, *_ in rounds)
        is_written = lambda: _commits(table)[-1][0] > last  # noqa: E731
        wait_until("all is in the table", is_written, _PATIENCE, [writer])
    size = hosts * sum(map(len, sent_by(plan, 0)))
    figures = {
        **costs,
        **latencies(plan, begin, _ROUND, "in the table", _times(rounds, _commits(table))),
        "MB/s": size / 1e6 / plan.seconds,
    }
    return Outcome(figures, _judge(table, plan))


def _commits(table: Path) -> list[tuple[int, float]]:
    """Return how far each commit is, and its monotonic seconds, of a table of one stream."""
    skew = time.time() - time.monotonic()  # noqa: TID251 - files have the time of day
    found = [
        (int(action["txn"]["version"]), path.stat().st_mtime - skew)
        for path in sorted((table / "lines/_delta_log").glob("*.json"))
        for action in map(json.loads, path.read_text("utf-8").splitlines())
        if "txn" in action
    ]
    return found or [(0, 0.0)]


def _times(
    rounds: list[Round], commits: list[tuple[int, float]]
) -> Iterator[tuple[int, int, float]]:
    for host, sequence, first, until, _ in rounds:
        at = next(at for end, at in commits if end > sequence)
        yield from ((host, position, at) for position in range(first, until))


def _judge(table: Path, plan: Plan) -> Verdict:
    rows = polars.scan_delta(str(table / "lines")).sort("sequence", "pos")
    found = rows.select("host", "line").collect().partition_by("host", as_dict=True)
    return added(
        judge(
            [b"".join(sent_by(plan, host))],
            "".join(f"{line}\n" for line in found[host_name(host),]["line"]).encode(),
        )
        for host in range(plan.until)
    )
