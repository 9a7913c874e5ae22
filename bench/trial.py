"""Run one case with several systems alternately, so that the machine's load concerns all.

A run that dies or takes too long is a run without a result, and one that took too long is not tried
again.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from bench.field.catalogue import OURS
from bench.field.system import Guarantees, System
from bench.result import Result, Run
from bench.resulttext import number
from tests.support.oracle import Verdict
from tests.support.processes import ProgramDied, TookTooLong

_FOLLOWS_NOTHING = "it follows no file that grows"
_GOES_NOWHERE = "it copies within one machine"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has shown."""

    figures: Mapping[str, float]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    `grows` when files do so meanwhile, `kills` when programs are killed, `far` when host and centre
    are apart, `alone` of us only. `measure` gets an empty folder; it raises TookTooLong and
    ProgramDied.
    """

    name: str
    parameters: Mapping[str, float | str]
    measure: Callable[[System, Path], Outcome]
    grows: bool = False
    kills: bool = False
    far: bool = False
    alone: bool = False


def turns(names: Sequence[str], runs: int) -> Iterator[tuple[int, str]]:
    """Yield the number of the run and who runs: A B C, then B C A, and so on."""
    for turn in range(runs):
        at = turn % len(names) if names else 0
        yield from ((turn, name) for name in (*names[at:], *names[:at]))


def measure(
    case: Case, systems: Sequence[System], runs: int, folder: Path, say: Callable[[str], None]
) -> tuple[Result, ...]:
    """Measure them, `runs` times each, and return a result for each, absent ones included.

    Where we are measured alone the others are left out.
    """
    systems = [system for system in systems if system.name == OURS or not case.alone]
    absent = {system.name: _absence(case, system) for system in systems}
    here = {system.name: system for system in systems if not absent[system.name]}
    for name in absent.keys() - here.keys():
        say(f"{case.name}: {name} is absent: {absent[name]}")
    found: dict[str, list[Run]] = {system.name: [] for system in systems}
    given_up: set[str] = set()
    for turn, name in turns(tuple(here), runs):
        if name in given_up:
            continue
        say(f"{case.name}, run {turn + 1}: {name}")
        try:
            run = _run(case, here[name], folder)
        except TookTooLong as error:
            given_up.add(name)
            run = _failed(error)
        except ProgramDied as error:
            run = _failed(error)
        found[name].append(run)
        say(f"  {_summary(run)}")
    return tuple(
        Result(
            case.name,
            case.parameters,
            system.name,
            system.guarantees,
            "" if absent[system.name] else system.version(),
            absent[system.name],
            tuple(found[system.name]),
        )
        for system in systems
    )


def _absence(case: Case, system: System) -> str:
    if case.grows and not system.follows:
        return _FOLLOWS_NOTHING
    if case.far and not system.follows:
        return _GOES_NOWHERE
    return system.missing()


def _run(case: Case, system: System, folder: Path) -> Run:
    place = folder / "run"
    # what the run before has left goes, and what it has left to be written is no part of this one
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    os.sync()
    load = machine.load()
    try:
        outcome = case.measure(system, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    verdict = outcome.verdict
    holds = _holds(verdict, system.guarantees, case)
    return Run(outcome.figures, load, _short(verdict), holds, verdict.reordered)


def _holds(verdict: Verdict, promised: Guarantees, case: Case) -> bool:
    if case.kills and not promised.survives_kill:
        return True
    return verdict.is_perfect or (verdict.is_complete and not promised.ordered)


def _failed(error: Exception) -> Run:
    lines = str(error).splitlines() or [type(error).__name__]
    told = " ... ".join(
        dict.fromkeys((lines[0], lines[-1]))
    )  # a traceback ends with what it is about
    return Run({}, machine.load(), told, holds=False)


def _short(verdict: Verdict) -> str:
    return "; ".join(line.strip() for line in str(verdict).splitlines()[:2])


def _summary(run: Run) -> str:
    if not run.holds:
        return f"no result: {run.verdict}"
    return ", ".join(f"{name} {number(value)}" for name, value in run.figures.items())
