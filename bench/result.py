"""The record of a measurement, as JSON: systems, machine, every run, and the checker's result.

A result without a line is no result: nothing is shown of a case in which one run did not hold what
the system promises.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from bench.field.system import Guarantees
from bench.machine import Machine
from nats_logship.app.files import write_atomic


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its figures by name and unit, the machine's load before it, the checker's result.

    `holds`: every line arrived once, byte for byte, in order where that is promised; `reordered`
    lines were not in order.
    """

    figures: Mapping[str, float]
    load: float
    verdict: str
    holds: bool
    reordered: int = 0


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over all runs."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of one system in one case. `absent` says why there are none."""

    case: str
    parameters: Mapping[str, float | str]
    system: str
    guarantees: Guarantees
    version: str = ""
    absent: str = ""
    runs: tuple[Run, ...] = ()

    @property
    def void(self) -> str:
        """Why there is nothing to show; empty where there is."""
        if self.absent:
            return f"absent: {self.absent}"
        bad = [run for run in self.runs if not run.holds]
        if bad:
            said = bad[0].verdict.partition("; bytes")[0]  # without the lines themselves
            return f"no result, {len(bad)} of {len(self.runs)} runs: {said}"
        return "" if self.runs else "no run"

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of all figures, in order."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.figures))

    def spread(self, figure: str) -> Spread | None:
        """Return a figure's spread; None where it was not measured."""
        values = [run.figures[figure] for run in self.runs if figure in run.figures]
        return Spread(median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Record:
    """One command's results: `about` explains its figures, `compared` names those compared.

    `date` is when it began (RFC 3339, UTC); `commit`, `code` and `dirty` are those of
    `bench.machine`. Sizes and rates of cases are in their `parameters`.
    """

    command: str
    about: str
    compared: tuple[str, ...]
    date: str
    commit: str
    code: str
    dirty: bool
    versions: Mapping[str, str]
    machine: Machine
    results: tuple[Result, ...] = ()


def compare_runs(ours: Result, theirs: Result, figure: str) -> Spread | None:
    """Return the ratios of ours to theirs, run by run; None if a run lacks the figure."""
    pairs = zip(ours.runs, theirs.runs, strict=True)
    values = [(one.figures.get(figure), other.figures.get(figure)) for one, other in pairs]
    ratios = [one / other for one, other in values if one is not None and other]
    if not ratios or len(ratios) < len(values):
        return None
    return Spread(median(ratios), min(ratios), max(ratios))


def write(folder: Path, record: Record) -> Path:
    """Exchange `<command>.json` in a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.command}.json"
    write_atomic(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n", 0o644)
    return path


def read(folder: Path) -> list[Record]:
    """Return all records of a folder by their commands' order.

    Raises ValueError with the name of a file that is none.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(msgspec.json.decode(path.read_bytes(), type=Record))
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path}: no record: {error}") from error
    return records
