"""Whether memory stays flat while lines come for a long time, for every system there is."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import click

from bench.charge import Charge
from bench.cpu import resident_bytes
from bench.field.system import System
from bench.large import judge_large
from bench.options import Question, compare
from bench.road import HOST, LINE_BYTES, live
from bench.trial import Case, Outcome

_SLICES = 50
_SHOWN = 5  # slices at either end over which memory is looked at
_ABOUT = """\
Lines of 200 bytes at a steady rate for a long time, the first tenth of which is not counted; \
every byte is checked. RSS: of all processes, pages that several share counted in each, over \
the first and the last tenth of what is counted. Latency: from a line's write until it can be \
read in the received file."""


def soak(system: System, folder: Path, rate: int, minutes: float) -> Outcome:
    """Write all the while, in an empty folder; raises as `live`."""
    memory: list[float] = []
    longest: list[float] = []
    with live(system, folder, rate, minutes * 6) as (road, programs):
        charge = Charge(programs)
        for _ in range(_SLICES):
            road.write_for(minutes * 60 / _SLICES)
            memory.append(sum(map(resident_bytes, charge.programs)) / 2**20)
            if len(latencies := road.latencies()) > 1:  # in a short slice there may be none
                longest.append(quantiles(latencies, n=100)[98])
        cpu = charge.shares()["CPU %"]
        road.wait_for_all(charge.programs)
    first, last = median(memory[:_SHOWN]), median(memory[-_SHOWN:])
    figures = {
        "RSS MiB at first": first,
        "RSS MiB at last": last,
        "RSS MiB at most": max(memory),
        "growth %": 100 * (last / first - 1),
        "CPU %": cpu,
        "p99 ms, median of slices": median(longest or [0.0]),
    }
    return Outcome(figures, judge_large(road.files[0], road.output, HOST))


@compare(Question("soak", _ABOUT, ("RSS MiB at last", "CPU %")))
@click.option("--rate", default=5_000, show_default=True, help="Lines a second.")
@click.option(
    "--minutes",
    multiple=True,
    type=float,
    default=(10.0,),
    show_default=True,
    help="Length of each run.",
)
@click.option("--alone", multiple=True, type=float, help="The same for us alone.")
def main(
    _: Path, rate: int, minutes: tuple[float, ...], alone: tuple[float, ...]
) -> Iterator[Case]:
    """Measure memory over some minutes; exits with 1 if a line of ours is not as it was written."""
    for number, long in enumerate((*minutes, *alone)):
        parameters = {"minutes": long, "lines_per_second": rate, "line_bytes": LINE_BYTES}
        measure = partial(soak, rate=rate, minutes=long)
        name, is_alone = f"{long:g} min, {rate:,} lines/s", number >= len(minutes)
        yield Case(name, parameters, measure, grows=True, alone=is_alone)


if __name__ == "__main__":
    main()
