"""Measure the time from a program's kill until lines flow again, and what lines are lost.

Lines are written all the while. One program after the other is killed (-9) and started again at
once.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from bench.field.system import System
from bench.options import Question, compare
from bench.road import LINE_BYTES, PATIENCE, Road, live
from bench.trial import Case, Outcome
from tests.support.processes import Process, TookTooLong

_WARM_UP = 3.0
_CALM = 3.0  # seconds of lines after a kill, at least
_FLOWS = (
    1_500_000_000  # nanoseconds: lines flow when one has come that was written so long ago at most
)
_SLICE = 0.1
_QUIET = 5.0  # seconds after which nothing more is expected of who has lost lines
_ABOUT = """\
Lines of 200 bytes at a steady rate; each program is killed (-9) and started again at once. \
Seconds: the longest time in which no line came to the received file, from the kill until lines \
flow. Missing, repeated: lines, of who does not promise to survive a kill."""


def restart(system: System, folder: Path, rate: int) -> Outcome:
    """Kill each program of a system once, in an empty folder; raises as `live`."""
    with live(system, folder, rate, _WARM_UP) as (road, programs):
        seconds = _seconds(road, programs)
        quiet = PATIENCE if system.guarantees.survives_kill else _QUIET
        _run_dry(road, list(programs.values()), quiet)
    verdict = road.judge()
    lost = {"missing": verdict.missing, "repeated": verdict.repeated}
    return Outcome({**seconds, **lost}, verdict)


def _seconds(road: Road, programs: Mapping[str, Process]) -> dict[str, float]:
    found = {}
    for name, program in programs.items():
        killed = time.time_ns()
        program.kill()
        program.start()
        found[f"pause s, {name} killed"] = _longest(road, name, killed)
    return found


def _longest(road: Road, name: str, killed: int) -> float:
    """Write on until lines flow; return the longest pause in seconds.

    A program that the killed one has started may carry some more lines.
    """
    last, longest, newest = killed, 0, 0
    while (passed := time.time_ns() - killed) < PATIENCE * 1e9:
        road.write_for(_SLICE)
        for arrival in road.arrivals():
            longest, last = max(longest, arrival.came - last), max(last, arrival.came)
            newest = max(newest, arrival.written)
        if passed > _CALM * 1e9 and time.time_ns() - newest < _FLOWS:
            return longest / 1e9
    raise TookTooLong(f"lines flow again after the kill of the {name}: not within {PATIENCE:g} s")


def _run_dry(road: Road, programs: Sequence[Process], quiet: float) -> None:
    """Wait until all has come, or nothing more has for `quiet` seconds."""
    changed, began = time.monotonic(), time.monotonic()
    while road.seen < road.written and time.monotonic() - began < PATIENCE:
        before = road.seen
        road.read()
        if road.seen != before:
            changed = time.monotonic()
        elif time.monotonic() - changed > quiet:
            return
        for program in programs:
            program.check()
        time.sleep(_SLICE)


@compare(Question("restart", _ABOUT, ("pause s, agent killed", "pause s, receiver killed")))
@click.option("--rate", default=500, show_default=True, help="Lines a second.")
def main(_: Path, rate: int) -> Iterator[Case]:
    """Measure how soon lines flow again after a kill.

    Exits with 1 if a line of ours is not as it was written.
    """
    parameters = {"lines_per_second": rate, "line_bytes": LINE_BYTES}
    measure = partial(restart, rate=rate)
    yield Case(f"{rate:,} lines/s", parameters, measure, grows=True, kills=True)


if __name__ == "__main__":
    main()
