"""How fast a backlog drains from a file on a host to the received file, and what it costs in processor time.

Broker and receiver run already; the clock starts with the shipper and stops when all lines are in the received file
and the receiver has committed them. Processor time is that of whole processes, start-up of the shipper included.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.cpu import cpu_seconds, quiet_after, resident_bytes
from bench.floor import copy_floor
from bench.oracle import Verdict, judge_host
from bench.processes import Process, Processes, wait_until
from bench.received import segments_of
from bench.suite import Suite
from bench.table import table

__all__ = ["Drained", "drain", "main"]

_HOST = "web01"
_GB = 1e9
_QUIET = 0.02
_NOTE = """\
MB/s: from the start of the shipper to all lines in the received file and committed. CPU: user + system seconds of the
whole process trees, from /proc, reaped children included. RSS: of all processes at the end, shared pages counted in each.
The backlog was just written and is in the page cache."""


@dataclass(frozen=True, slots=True)
class Drained:
    """One run. Times in seconds; CPU in seconds per GB of lines (1e9 bytes).

    `resident` is the memory of all programs at the end, in bytes.
    """

    seconds: float
    megabytes_per_second: float
    shipper_cpu: float
    broker_cpu: float
    receiver_cpu: float
    total_cpu: float
    resident: int
    verdict: str
    perfect: bool


def drain(backlog: Path, folder: Path, shipper_options: tuple[str, ...], cold: bool) -> Drained:
    """Run once, in an empty folder, and return what was measured; raises TookTooLong and ProgramDied."""
    with Processes(folder) as processes:
        suite = Suite(folder, processes, partitions=1)
        broker = suite.start_broker()
        receiver = suite.start_receiver([0])
        suite.wait_for_receiver(receiver, [0])
        if not cold:
            _warm_up(suite, receiver)
        quiet_after(receiver, _QUIET, 0.5)
        before = [cpu_seconds(broker), cpu_seconds(receiver)]
        began = time.monotonic()
        shipper = suite.start_shipper(_HOST, [backlog], *shipper_options)
        _wait_until_drained(suite, backlog.stat().st_size, [shipper, broker, receiver])
        seconds = time.monotonic() - began
        used = [
            cpu_seconds(shipper),
            cpu_seconds(broker) - before[0],
            cpu_seconds(receiver) - before[1],
        ]
        memory = sum(resident_bytes(program) for program in (shipper, broker, receiver))
        verdict = judge_host([backlog], suite.output, _HOST)
    return _drained(backlog.stat().st_size, seconds, used, memory, verdict)


def _drained(
    size: int, seconds: float, used: list[float], memory: int, verdict: Verdict
) -> Drained:
    shipper, broker, receiver = (round(seconds_used / (size / _GB), 2) for seconds_used in used)
    return Drained(
        seconds=round(seconds, 2),
        megabytes_per_second=round(size / 1e6 / seconds, 1),
        shipper_cpu=shipper,
        broker_cpu=broker,
        receiver_cpu=receiver,
        total_cpu=round(shipper + broker + receiver, 2),
        resident=memory,
        verdict=str(verdict),
        perfect=verdict.is_perfect,
    )


def _warm_up(suite: Suite, receiver: Process) -> None:
    # a started receiver has a worker; Spark makes it with the first job
    sequence = suite.publish("logs.p0.warm-up", b"one line\n")
    wait_until(
        "the first line is committed", lambda: _is_committed(suite, sequence), 60, [receiver]
    )


def _wait_until_drained(suite: Suite, size: int, programs: list[Process]) -> None:
    def is_received() -> bool:
        files = segments_of(suite.output, _HOST)
        return sum(file.stat().st_size for file in files if file.exists()) >= size

    wait_until("the backlog is received", is_received, 120 + size / 5e6, programs)
    last = suite.last_sequence()
    wait_until("the backlog is committed", lambda: _is_committed(suite, last), 60, programs)


def _is_committed(suite: Suite, sequence: int) -> bool:
    offset = suite.offset(0)
    return offset is not None and offset.next > sequence


def _show(runs: list[Drained]) -> str:
    def row(name: str, values: list[float]) -> list[str]:
        return [name, *(f"{value:.1f}" for value in values)]

    def numbers(run: Drained) -> list[float]:
        return [
            run.megabytes_per_second,
            run.seconds,
            run.total_cpu,
            run.shipper_cpu,
            run.broker_cpu,
            run.receiver_cpu,
            run.resident / 2**20,
        ]

    rows = [row(f"run {number}", numbers(run)) for number, run in enumerate(runs, 1)]
    medians = [statistics.median(column) for column in zip(*map(numbers, runs), strict=True)]
    heads = ["", "MB/s", "s", "CPU s/GB", "= shipper", "+ broker", "+ receiver", "RSS MiB"]
    return table(heads, [*rows, row("median", medians)])


@click.command()
@click.option("--size", default=400, show_default=True, help="Backlog in MB (1e6 bytes).")
@click.option("--runs", default=3, show_default=True)
@click.option("--compression", default="auto", show_default=True, help="The shipper's option.")
@click.option("--cold", is_flag=True, help="Do not let the receiver receive a line before.")
@click.option("--json", "report", type=click.Path(path_type=Path), help="Write the figures there.")
def main(size: int, runs: int, compression: str, cold: bool, report: Path | None) -> None:
    """Measure how fast a backlog of 200-byte lines drains; exit 1 when a line is not as it was written."""
    with tempfile.TemporaryDirectory(prefix="logship-drain-") as name:
        folder = Path(name)
        backlog = folder / "backlog.log"
        write_backlog(backlog, size * 1_000_000 // LINE_BYTES)
        print(f"{size} MB of {LINE_BYTES}-byte lines, compression {compression}")
        print(f"copy and fsync of the same file: {copy_floor(backlog, folder)}")
        print(
            f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
            flush=True,
        )
        results = []
        for number in range(1, runs + 1):
            run_folder = folder / f"run{number}"
            run_folder.mkdir()
            results.append(drain(backlog, run_folder, ("--compression", compression), cold))
            print(f"run {number}: {results[-1].verdict}", flush=True)
        print(f"{_show(results)}\n{_NOTE}")
    if report:
        report.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    sys.exit(0 if all(result.perfect for result in results) else 1)


if __name__ == "__main__":
    main()
