"""How fast an agent alone ships a backlog into the stream, and what that costs: rate, processor time, memory.

The broker runs already, no receiver does. The clock runs from the start of `logshipper --once` to its end, when
everything is acknowledged; then the stream is read back and compared with the file byte for byte.
"""

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.cpu import cpu_seconds, peak_bytes, reaped_seconds
from bench.floor import copy_floor, publish_floor
from bench.processes import Process, Processes
from bench.stored import judge_stored
from bench.suite import Suite
from bench.table import table
from broker.wire.subjects import Subject

__all__ = ["Shipped", "main", "ship"]

_HOST = "web01"
_GB = 1e9
_NOTE = """\
MB/s: lines, from the start of `logshipper --once` to its end. CPU: user + system seconds of whole processes per GB of
lines; "less start" without what an agent costs that ships one line. RSS: the agent's peak. stored: bytes in the stream.
The backlog was just written and is in the page cache; absolute figures are this machine's, compare ratios of one run."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """One run: bytes of lines, seconds, CPU seconds of the two programs, peak memory and stored size in bytes."""

    size: int
    mode: str
    seconds: float
    agent_cpu: float
    broker_cpu: float
    peak: int
    stored: int
    verdict: str
    perfect: bool


def ship(backlog: Path, folder: Path, options: Sequence[str]) -> Shipped:
    """Run once, in an empty folder; raises TookTooLong and ProgramDied."""
    size = backlog.stat().st_size
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        broker = suite.start_broker()
        # the broker is not reaped before the end, so that what is added meanwhile is the agent's
        broker_before, agent_before = cpu_seconds(broker), reaped_seconds()
        began = time.monotonic()
        shipper = suite.start_shipper(_HOST, [backlog], "--once", *options)
        peak = _peak_until_end(shipper, 120 + size / 5e6)
        seconds = time.monotonic() - began
        agent = reaped_seconds() - agent_before
        broker_cpu = cpu_seconds(broker) - broker_before
        stored = sum(file.stat().st_size for file in (folder / "store").rglob("*.blk"))
        verdict = asyncio.run(judge_stored(suite.url, _HOST, 1, [backlog]))
    return Shipped(
        size,
        " ".join(options),
        seconds,
        agent,
        broker_cpu,
        peak,
        stored,
        str(verdict),
        verdict.is_perfect,
    )


def _peak_until_end(shipper: Process, seconds: float) -> int:
    peak, deadline = 0, time.monotonic() + seconds
    while shipper.is_running() and time.monotonic() < deadline:
        peak = max(peak, peak_bytes(shipper))
        time.sleep(0.05)
    code = shipper.wait(1)
    if code:
        sys.exit(f"logshipper ended with {code}: {shipper.last_words()}")
    return peak


def _floors(backlog: Path, folder: Path) -> str:
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        broker = suite.start_broker()
        before = cpu_seconds(broker)
        subject = str(Subject.for_host("floor", 1))
        bare = publish_floor(backlog, int(suite.url.rpartition(":")[2]), subject)
        cost = (cpu_seconds(broker) - before) / (backlog.stat().st_size / _GB)
    copy = copy_floor(backlog, folder)
    return f"floors: copy and fsync {copy}; bare publish loop {bare}, and {cost:.2f} in the broker"


def _show(runs: Sequence[Shipped], start: float) -> str:
    rows = []
    for size, mode in dict.fromkeys((run.size, run.mode) for run in runs):
        same = [run for run in runs if (run.size, run.mode) == (size, mode)]
        gigabytes = size / _GB
        columns = [
            [run.size / 1e6 / run.seconds for run in same],
            [run.agent_cpu / gigabytes for run in same],
            [(run.agent_cpu - start) / gigabytes for run in same],
            [run.broker_cpu / gigabytes for run in same],
            [run.peak / 2**20 for run in same],
            [run.stored / 1e6 for run in same],
        ]
        medians = [statistics.median(column) for column in columns]
        figures = [
            f"{value:.{digits}f}" for value, digits in zip(medians, (0, 2, 2, 2, 0, 0), strict=True)
        ]
        rows.append([f"{size / 1e6:.0f} MB {mode.rpartition(' ')[2]}", *figures])
    heads = ["", "MB/s", "agent CPU s/GB", "less start", "broker CPU s/GB", "RSS MiB", "stored MB"]
    return table(heads, rows)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What is run: each mode in turn over each size, so that modes meet the same weather."""

    sizes: Sequence[int]
    modes: Sequence[str]
    runs: int
    options: Sequence[str]

    def run(self, folder: Path) -> list[Shipped]:
        results = []
        for size in self.sizes:
            backlog = folder / "backlog.log"
            write_backlog(backlog, size * 1_000_000 // LINE_BYTES)
            print(_floors(backlog, _fresh(folder)), flush=True)
            for _ in range(self.runs):
                for mode in self.modes:
                    options = (*self.options, "--compression", mode)
                    results.append(ship(backlog, _fresh(folder), options))
                    print(f"{size} MB {mode}: {results[-1].verdict}", flush=True)
        return results

    def start_cost(self, folder: Path) -> float:
        """Return the CPU seconds of an agent that ships one line."""
        backlog = folder / "one.log"
        write_backlog(backlog, 1)
        return statistics.median(
            ship(backlog, _fresh(folder), self.options).agent_cpu for _ in range(self.runs)
        )


def _fresh(folder: Path) -> Path:
    # the store of the run before goes: its pages would be written to disk during this one
    place = folder / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    return place


@click.command()
@click.option("--size", "sizes", multiple=True, type=int, default=(100, 400), show_default=True)
@click.option("--mode", "modes", multiple=True, default=("none", "zstd", "auto"), show_default=True)
@click.option("--runs", default=3, show_default=True)
@click.option("--option", "options", multiple=True, help="A further word for logshipper.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures there.")
def main(
    sizes: tuple[int, ...],
    modes: tuple[str, ...],
    runs: int,
    options: tuple[str, ...],
    report: Path | None,
) -> None:
    """Measure an agent alone over backlogs of SIZE MB (1e6 bytes); exit 1 when a line is not stored as it was written."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed agent has its bytecode, too
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    trial = _Trial(sizes, modes, runs, options)
    with tempfile.TemporaryDirectory(prefix="logship-agent-") as name:
        start = trial.start_cost(Path(name))
        results = trial.run(Path(name))
    print(f"an agent that ships one line: {start:.2f} CPU s")
    print(f"{_show(results, start)}\n{_NOTE}")
    if report:
        report.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    sys.exit(0 if all(result.perfect for result in results) else 1)


if __name__ == "__main__":
    main()
