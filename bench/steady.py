"""Measure the cost of lines that come at a steady rate, and how soon they can be read.

Each line carries the time of its write; a reader follows the received file, and both use the
clock of this machine.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import quantiles

import click

from bench.charge import Charge
from bench.field.system import System
from bench.options import Question, compare
from bench.road import LINE_BYTES, live
from bench.trial import Case, Outcome

_FILES = 10
_WARM_UP = 5.0  # seconds of lines that are not counted
_ABOUT = """\
Lines of 200 bytes at a steady rate over ten files of one host, in up to 1,000 writes a second, \
after five seconds that are not counted; every byte is checked. Latency: from a line's write \
until it can be read in the received file. CPU: user and system time of all processes in % of a \
core. Peak RSS: of all processes, each when it had most."""


def steady(system: System, folder: Path, rate: int, seconds: float) -> Outcome:
    """Write for so many seconds while a system follows, in an empty folder; raises as `live`."""
    with live(system, folder, rate, _WARM_UP, _FILES) as (road, programs):
        charge, before = Charge(programs), road.written
        road.write_for(seconds)
        shares, passed = charge.shares(), charge.seconds
        written = (road.written - before) / LINE_BYTES
        road.wait_for_all(charge.programs)
        peak = charge.peak()
    verdict = road.judge()
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


@compare(Question("steady", _ABOUT, ("p99 ms", "CPU %")))
@click.option("--rate", "rates", multiple=True, type=int, default=(5_000,), show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Of lines that are counted.")
def main(_: Path, rates: tuple[int, ...], seconds: float) -> Iterator[Case]:
    """Measure what some lines a second cost, and how soon they arrive.

    Exits with 1 if a line of ours is not as it was written.
    """
    for rate in rates:
        parameters = {"lines_per_second": rate, "seconds": seconds, "line_bytes": LINE_BYTES}
        measure = partial(steady, rate=rate, seconds=seconds)
        yield Case(f"{rate:,} lines/s", parameters, measure, grows=True)


if __name__ == "__main__":
    main()
