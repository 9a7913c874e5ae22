"""The record of a measurement, as JSON: systems, machine, every run, and the checker's result.

A result without a line is no result: nothing is shown of a case in which one run did not hold what
the system promises.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.field.system import Guarantees
from bench.machine import Machine
from nats_logship.app.files import write_atomic

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios of all pairs, and how far they lie apart."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f}..{self.most:.2f})"


def ratio(ones: Sequence[float], others: Sequence[float]) -> Ratio:
    """Return how `ones` compare with `others`, which were measured beside them in this order.

    Raises ValueError for runs that are not in pairs, and for an other one of 0.
    """
    if not ones:
        raise ValueError("no runs")
    if not all(others):
        raise ValueError("nothing to compare with: 0")
    found = sorted(one / other for one, other in zip(ones, others, strict=True))
    return Ratio(median(found), found[0], found[-1])


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

    def as_json(self) -> dict[str, Any]:
        """Return it with the spread of every figure, for who reads the file."""
        return {**asdict(self), "spread": self._spreads()}

    def _spreads(self) -> dict[str, Any]:
        spreads = {figure: self.spread(figure) for figure in self.figures}
        return {figure: asdict(spread) for figure, spread in spreads.items() if spread}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Result":
        """Read what `as_json` has made; raises KeyError and TypeError where it has not."""
        own = {name: value for name, value in document.items() if name != "spread"}
        own["guarantees"] = Guarantees(**document["guarantees"])
        own["runs"] = tuple(Run(**run) for run in document["runs"])
        return cls(**own)


@dataclass(frozen=True, slots=True)
class Record:
    """One command's results: `about` explains its figures, `compared` names those compared.

    `date` is when it began (RFC 3339, UTC); `commit`, `code` and `dirty` are those of
    `bench.provenance`. Sizes and rates of cases are in their `parameters`.
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

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        own = {**asdict(self), "results": [result.as_json() for result in self.results]}
        return {"format": _FORMAT, **own}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Record":
        """Read what `as_json` has made; raises ValueError where it is of another format."""
        if document.get("format") != _FORMAT:
            raise ValueError(f"format {document.get('format')}, not {_FORMAT}")
        own = {name: value for name, value in document.items() if name != "format"}
        own["compared"] = tuple(document["compared"])
        own["machine"] = Machine(**document["machine"])
        own["results"] = tuple(map(Result.from_json, document["results"]))
        return cls(**own)


def compared(ours: Result, theirs: Result, figure: str) -> Ratio | None:
    """Return the ratio of ours to theirs in the same round; None if a run lacks the figure."""
    pairs = zip(ours.runs, theirs.runs, strict=True)
    values = [(one.figures.get(figure), other.figures.get(figure)) for one, other in pairs]
    known = [(one, other) for one, other in values if one is not None and other]
    if not known or len(known) < len(values):
        return None
    return ratio([one for one, _ in known], [other for _, other in known])


def write(folder: Path, record: Record) -> Path:
    """Exchange `<command>.json` in a folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.command}.json"
    write_atomic(path, json.dumps(record.as_json(), indent=1, ensure_ascii=False) + "\n", 0o644)
    return path


def read(folder: Path) -> list[Record]:
    """Return all records of a folder by their commands' order.

    Raises ValueError with the name of a file that is none.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(Record.from_json(json.loads(path.read_text("utf-8"))))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: no record: {error!r}") from error
    return records
