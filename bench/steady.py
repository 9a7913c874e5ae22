"""Measure the cost of lines that come at a steady rate, and how soon they can be read.

Each line carries the time of its write; a reader follows the received file, and both use the
clock of this machine.
"""

from functools import partial
from pathlib import Path
from statistics import quantiles

import click

from bench.charge import Charge
from bench.field.system import System
from bench.options import Field, Question, field_options
from bench.road import LINE_BYTES, Road
from bench.trial import Case, Outcome
from tests.support.oracle import judge_host
from tests.support.processes import Processes

_HOST = "web01"
_FILES = 10
_WRITES = 1_000  # a second, at most
_WARM_UP = 5.0  # seconds of lines that are not counted
_PATIENCE = 60.0  # seconds until all has come that was written
_ABOUT = """\
Lines of 200 bytes at a steady rate over ten files of one host, in up to 1,000 writes a second, \
after five seconds that are not counted; every byte is checked. Latency: from a line's write \
until it can be read in the received file. CPU: user and system time of all processes in % of a \
core. Peak RSS: of all processes, each when it had most."""
_QUESTION = Question("steady", _ABOUT, ("p99 ms", "CPU %"))


def steady(system: System, folder: Path, rate: int, seconds: float) -> Outcome:
    """Write for so many seconds while a system follows, in an empty folder.

    Raises TookTooLong and ProgramDied.
    """
    logs, place = folder / "logs", folder / "system"
    for path in (logs, place):
        path.mkdir()
    files = [logs / f"app{number}.log" for number in range(_FILES)]
    for path in files:
        path.touch()
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        agent = staged.start_agent(_HOST, logs)
        road = Road(files, rate, max(1, rate // _WRITES), staged.output / f"{_HOST}.log")
        programs = {**staged.centre, "agent": agent}
        road.write_for(_WARM_UP)
        road.wait_for_all(_PATIENCE, list(programs.values()))
        road.forget()
        charge, before = Charge(programs), road.written
        road.write_for(seconds)
        shares, passed = charge.shares(), charge.seconds
        written = (road.written - before) / LINE_BYTES
        road.wait_for_all(_PATIENCE, charge.programs)
        peak = charge.peak()
    verdict = judge_host(files, staged.output, _HOST)
    if not verdict.is_complete:
        return Outcome({}, verdict)  # the lines that came are unknown
    cuts = quantiles(latencies := road.latencies(), n=100)
    figures = {
        "p50 ms": cuts[49],
        "p99 ms": cuts[98],
        "max ms": max(latencies),
        **shares,
        "lines/s": written / passed,
        "peak RSS MiB": peak / 2**20,
    }
    return Outcome(figures, verdict)


@click.command()
@click.option("--rate", "rates", multiple=True, type=int, default=(5_000,), show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Of lines that are counted.")
@field_options
def main(field: Field, rates: tuple[int, ...], seconds: float) -> None:
    """Measure what some lines a second cost, and how soon they arrive.

    Exits with 1 if a line of ours is not as it was written.
    """
    cases = [
        Case(
            f"{rate:,} lines/s",
            {"lines_per_second": rate, "seconds": seconds, "line_bytes": LINE_BYTES},
            partial(steady, rate=rate, seconds=seconds),
            grows=True,
        )
        for rate in rates
    ]
    with field.folder() as folder:
        field.answer(_QUESTION, cases, folder)


if __name__ == "__main__":
    main()
