"""How fast a receiver alone writes a backlog that is in the stream already, and what that costs: rate, processor time, memory.

The clock runs from the start of `logreceiver --once` to its end, when everything is on disk and committed; what a run over
one line takes is subtracted. Then every host's files are compared with what was sent, byte for byte.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.backlog import LINE_BYTES
from bench.expected import Expected
from bench.fill import BLOCK_LINES, Sent, blocks, fill, plain_lines
from bench.processes import Processes, ProgramDied, TookTooLong
from bench.suite import Suite
from bench.table import table
from bench.watch import PARTS, Watch

__all__ = ["Received", "main", "receive"]

_GB = 1e9
_SMALL_BLOCK = 20  # lines
_MOST = 3600.0  # seconds of a run
_NOTE = """\
MB/s and lines/s: from the start of `logreceiver --once` to its end, less a run over one line. CPU: user + system seconds per
GB of lines, less the same, by process. PSS: the most that all processes had at a time. Blocks are of 256 KiB from 5 hosts;
single lines are plain publishes without headers of ours; the last two are blocks of 20 lines, from 5 and from 5,000 hosts."""

Fill = Callable[[int], Iterator[Sent]]

_CASES: dict[str, tuple[int, Fill]] = {
    "blocks": (1, lambda lines: blocks(lines, 5, BLOCK_LINES)),
    "zstd": (1, lambda lines: blocks(lines, 5, BLOCK_LINES, compressed=True)),
    "single": (10, plain_lines),
    "5-hosts": (2, lambda lines: blocks(lines, 5, _SMALL_BLOCK)),
    "5000-hosts": (2, lambda lines: blocks(lines, 5_000, _SMALL_BLOCK)),
}
"""By name: which part of the size is enough, and what is sent for a number of lines."""


@dataclass(frozen=True, slots=True)
class Received:
    """One run: lines, seconds, CPU seconds of driver, JVM and workers, and the most memory in bytes."""

    case: str
    lines: int
    seconds: float
    cpu: tuple[float, ...]
    memory: int
    verdict: str
    perfect: bool


def receive(case: str, lines: int, folder: Path, options: Sequence[str] = ()) -> Received:
    """Run once, in an empty folder; raises TookTooLong and ProgramDied."""
    messages = _CASES[case][1]
    expected = Expected()
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        suite.start_broker()
        fill(int(suite.url.rpartition(":")[2]), expected.note(messages(lines)))
        os.sync()  # what filling left to be written is no part of receiving
        began = time.monotonic()
        watch = Watch(suite.start_receiver([0], "--once", "--compress", "none", *options))
        watch.until_end(_MOST)
        seconds = time.monotonic() - began
    verdict = expected.judge(suite.output, messages(lines))
    cpu = tuple(watch.cpu.values())
    return Received(case, lines, seconds, cpu, watch.memory, str(verdict), verdict.is_perfect)


def _show(runs: Sequence[Received], starts: Sequence[Received]) -> str:
    rows = []
    begun = statistics.median(start.seconds for start in starts)
    for case, lines in dict.fromkeys((run.case, run.lines) for run in runs):
        same = [run for run in runs if (run.case, run.lines) == (case, lines)]
        size = lines * LINE_BYTES
        seconds = max(statistics.median(run.seconds for run in same) - begun, 0.001)
        cpu = [(_cpu(same, part) - _cpu(starts, part)) / (size / _GB) for part in range(len(PARTS))]
        rows.append(
            [
                f"{case}, {size / 1e6:.0f} MB",
                f"{size / 1e6 / seconds:.0f}",
                f"{lines / seconds:.0f}",
                f"{sum(cpu):.2f}",
                *(f"{used:.2f}" for used in cpu),
                f"{max(run.memory for run in same) / 2**20:.0f}",
            ]
        )
    heads = ["", "MB/s", "lines/s", "CPU s/GB", *(f"{part}" for part in PARTS), "PSS MiB"]
    return table(heads, rows)


def _cpu(runs: Sequence[Received], part: int) -> float:
    return statistics.median(run.cpu[part] for run in runs)


@click.command()
@click.option("--size", "sizes", multiple=True, type=int, default=(400,), show_default=True)
@click.option(
    "--case", "cases", multiple=True, type=click.Choice(list(_CASES)), default=tuple(_CASES)
)
@click.option("--runs", default=3, show_default=True)
@click.option("--option", "options", multiple=True, help="A further word for logreceiver.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures there.")
def main(
    sizes: tuple[int, ...],
    cases: tuple[str, ...],
    runs: int,
    options: tuple[str, ...],
    report: Path | None,
) -> None:
    """Measure a receiver alone over backlogs of SIZE MB (1e6 bytes); exit 1 when a line is not received as it was sent."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed receiver has its bytecode, too
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    results = []
    starts = [_fresh_run("single", 1, options) for _ in range(runs)]
    for size in sizes:
        for _ in range(runs):
            for case in cases:
                lines = size * 1_000_000 // LINE_BYTES // _CASES[case][0]
                results.append(_fresh_run(case, lines, options))
                print(f"{case}: {results[-1].verdict}", flush=True)
    print(f"runs over one line: {', '.join(f'{start.seconds:.1f} s' for start in starts)}")
    print(f"{_show(results, starts)}\n{_NOTE}")
    if report:
        report.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    sys.exit(0 if all(result.perfect for result in results) else 1)


def _fresh_run(case: str, lines: int, options: Sequence[str]) -> Received:
    with tempfile.TemporaryDirectory(prefix="logship-receive-") as name:
        try:
            return receive(case, lines, Path(name), options)
        except (ProgramDied, TookTooLong) as error:
            sys.exit(str(error))


if __name__ == "__main__":
    main()
