"""Measure how fast an agent catches up after it was down, and how late live lines are meanwhile.

A backlog is in one file of a host, and the application goes on writing into another.
"""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles

import click

from bench.backlog import LINE_BYTES, write_backlog
from bench.charge import Charge
from bench.field.system import System
from bench.options import Question, compare
from bench.road import HOST, Road, make_folders
from bench.trial import Case, Outcome
from tests.support.oracle import judge_host
from tests.support.processes import Process, Processes, TookTooLong

_SLICE = 0.1  # seconds
_BEHIND = 10  # slices: who is a second behind has caught up
_ABOUT = """\
From the start of an agent until it has caught up: all of a backlog in one file, and of what \
was written to another at a steady rate until a second ago, is in the received file; every byte \
is checked. Live: from a line's write until it can be read there, of lines that were written \
meanwhile. CPU: user and system seconds of all processes per GB (1e9 bytes) of backlog."""


def catch_up(system: System, folder: Path, backlog: Path, rate: int) -> Outcome:
    """Catch up once, in an empty folder on the backlog's file system.

    Raises TookTooLong and ProgramDied.
    """
    logs, place = make_folders(folder)
    old, live = logs / "backlog.log", logs / "app.log"
    old.hardlink_to(backlog)
    live.touch()
    size = old.stat().st_size
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        road = Road([live], rate, staged.output)
        charge = Charge(staged.centre, size)
        charge.add("agent", staged.start_agent(HOST, logs))
        _write_until_caught_up(road, size, charge.programs)
        seconds, cpu = charge.seconds, charge.per_gb(size)["CPU s/GB"]
        road.expect(size)
        road.wait_for_all(charge.programs)
    verdict = judge_host([old, live], staged.output, HOST)
    if not verdict.is_complete:
        return Outcome({}, verdict)
    cuts = quantiles(road.latencies(), n=100)
    figures = {
        "MB/s": size / 1e6 / seconds,
        "live p50 s": cuts[49] / 1000,
        "live p99 s": cuts[98] / 1000,
        "CPU s/GB": cpu,
    }
    return Outcome(figures, verdict)


def _write_until_caught_up(road: Road, size: int, programs: Sequence[Process]) -> None:
    most = 120 + size / 2e6
    began = time.monotonic()
    written = deque([0], _BEHIND)
    while road.seen < size + written[0]:
        if time.monotonic() - began > most:
            raise TookTooLong(f"it has caught up: not within {most:g} s")
        for program in programs:
            program.check()
        written.append(road.written)
        road.write_for(_SLICE)


@compare(Question("catchup", _ABOUT, ("MB/s", "live p99 s")))
@click.option("--megabytes", multiple=True, type=int, default=(400,), show_default=True)
@click.option("--rate", default=1_000, show_default=True, help="Lines a second meanwhile.")
def main(folder: Path, megabytes: tuple[int, ...], rate: int) -> Iterator[Case]:
    """Measure how fast an agent catches up with a backlog.

    Exits with 1 if a line of ours is not as it was written.
    """
    backlog = folder / "backlog.log"
    for number in megabytes:
        backlog.unlink(missing_ok=True)
        write_backlog(backlog, number * 1_000_000 // LINE_BYTES)
        parameters = {"megabytes": number, "lines_per_second": rate, "line_bytes": LINE_BYTES}
        measure = partial(catch_up, backlog=backlog, rate=rate)
        yield Case(f"{number:,} MB, {rate:,} lines/s", parameters, measure, grows=True)


if __name__ == "__main__":
    main()
