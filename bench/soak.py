"""Whether memory stays flat while lines come for a long time, for every system there is."""

from functools import partial
from pathlib import Path
from statistics import median, quantiles

import click

from bench.charge import Charge
from bench.cpu import resident_bytes
from bench.field.system import System
from bench.large import judge_large
from bench.options import Field, Question, field_options
from bench.road import LINE_BYTES, Road
from bench.trial import Case, Outcome
from tests.support.processes import Processes

_HOST = "web01"
_SLICES = 50
_SHOWN = 5  # slices at either end over which memory is looked at
_PATIENCE = 60.0  # seconds until all has come that was written
_ABOUT = """\
Lines of 200 bytes at a steady rate for a long time, the first tenth of which is not counted; \
every byte is checked. RSS: of all processes, pages that several share counted in each, over \
the first and the last tenth of what is counted. Latency: from a line's write until it can be \
read in the received file."""
_QUESTION = Question("soak", _ABOUT, ("RSS MiB at last", "CPU %"))


def soak(system: System, folder: Path, rate: int, minutes: float) -> Outcome:
    """Write all the while, in an empty folder; raises TookTooLong and ProgramDied."""
    logs, place = folder / "logs", folder / "system"
    for path in (logs, place):
        path.mkdir()
    file = logs / "app.log"
    file.touch()
    slice_seconds = minutes * 60 / _SLICES
    memory: list[float] = []
    longest: list[float] = []
    with Processes(place) as processes:
        staged = system.stage(place, processes)
        road = Road([file], rate, max(1, rate // 1000), staged.output / f"{_HOST}.log")
        programs = {**staged.centre, "agent": staged.start_agent(_HOST, logs)}
        road.write_for(minutes * 6)
        road.wait_for_all(_PATIENCE, list(programs.values()))
        road.forget()
        charge = Charge(programs)
        for _ in range(_SLICES):
            road.write_for(slice_seconds)
            memory.append(sum(map(resident_bytes, charge.programs)) / 2**20)
            if len(latencies := road.latencies()) > 1:  # in a short slice there may be none
                longest.append(quantiles(latencies, n=100)[98])
        cpu = charge.shares()["CPU %"]
        road.wait_for_all(_PATIENCE, charge.programs)
    first, last = median(memory[:_SHOWN]), median(memory[-_SHOWN:])
    figures = {
        "RSS MiB at first": first,
        "RSS MiB at last": last,
        "RSS MiB at most": max(memory),
        "growth %": 100 * (last / first - 1),
        "CPU %": cpu,
        "p99 ms, median of slices": median(longest or [0.0]),
    }
    return Outcome(figures, judge_large(file, staged.output, _HOST))


@click.command()
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
@field_options
def main(field: Field, rate: int, minutes: tuple[float, ...], alone: tuple[float, ...]) -> None:
    """Measure memory over some minutes; exits with 1 if a line of ours is not as it was written."""
    cases = [
        Case(
            f"{long:g} min, {rate:,} lines/s",
            {"minutes": long, "lines_per_second": rate, "line_bytes": LINE_BYTES},
            partial(soak, rate=rate, minutes=long),
            grows=True,
            alone=number >= len(minutes),
        )
        for number, long in enumerate((*minutes, *alone))
    ]
    with field.folder() as folder:
        field.answer(_QUESTION, cases, folder)


if __name__ == "__main__":
    main()
