"""What a run says of itself: its events, as lines of JSON in `run.jsonl` of its folder and for a person, and its result."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.order import Shape
from tests.chaos.schedule import Fault
from tests.support.oracle import Verdict

__all__ = ["Progress", "Result", "RunLog", "Struck", "summary"]

_LINES = (
    *("written", "received", "missing", "repeated", "reordered"),
    *("torn", "altered", "foreign"),
)
"""What is counted of lines, as the oracle names it."""

_FEWEST = 0.05  # of the lines that the shape's rate stands for
_ENDS_A_PROGRAM = ("kill-shipper", "kill-broker", "kill-driver", "kill-spark-worker")


@dataclass(slots=True)
class Struck:
    """What became of a fault: `struck`, or why not."""

    fault: Fault
    struck: bool = False
    error: BaseException | None = None


class RunLog:
    """Appends events; each has `event` and `at`, in seconds since the run began. `follow` is called with each."""

    def __init__(
        self, path: Path, follow: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> None:
        self.path = path
        self._follow = follow
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def tell(self, event: str, **fields: Any) -> None:
        """Append one event."""
        told = {"event": event, "at": round(time.monotonic() - self._began, 2), **fields}
        line = json.dumps(told)
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self._follow(told)


class Progress:
    """Turns events into lines; remembers the stroke that is under way."""

    def __init__(self) -> None:
        self._stroke = ""
        self._misses: list[str] = []

    def line_of(self, event: Mapping[str, Any]) -> str | None:
        """Return the line that an event completes, None for one that completes none."""
        match event["event"]:
            case "stroke":
                line = f"{self._told()}: no lines waited for" if self._stroke else None
                self._stroke = f"{event['number']:4}  {_faults(event['faults'])}"
                self._misses = []
                return line
            case "not struck":
                self._misses.append(event["kind"])
                return None
            case "flows":
                what = self._told() if self._stroke else "   -  all is started"
                self._stroke = ""
                return f"{what}: lines flow after {event['waited']:.1f} s"
            case "finding":
                what = self._told() if self._stroke else "   -"
                self._stroke = ""
                return f"{what}: {event['words']}"
            case "dry":
                return f"   -  no faults any more: all is received after {event['waited']:.1f} s"
            case _:
                return None

    def _told(self) -> str:
        misses = f" (nothing to hit: {', '.join(self._misses)})" if self._misses else ""
        return f"{self._stroke}{misses}"


def _faults(faults: list[Mapping[str, Any]]) -> str:
    return " + ".join(
        f"{fault['kind']} {fault['lasts']:g} s" if fault["lasts"] else str(fault["kind"])
        for fault in faults
    )


@dataclass(slots=True)
class Result:
    """What a run has shown; it has passed when there is no finding.

    `waits` are the seconds until lines flowed again, after each stroke that settled; `longest` the longest of them by kind of
    fault. `starts` counts how often programs were started again. `destroyed` and `reported` are bytes: taken on purpose, and told as
    lost. `writing` is how long there was writing, in seconds.
    """

    seed: int
    strokes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    not_struck: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    writing: float = 0.0
    starts: int = 0
    waits: list[float] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    destroyed: int = 0
    reported: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def has_passed(self) -> bool:
        return not self.findings

    def count(self, strokes: Iterable[Struck]) -> set[str]:
        """Count what became of the faults of a stroke, and return the kinds that have struck."""
        self.strokes += 1
        found = list(strokes)
        for one in found:
            (self.faults if one.struck else self.not_struck)[one.fault.kind] += 1
        return {one.fault.kind for one in found if one.struck}

    def flowed(self, waited: float, kinds: Iterable[str]) -> None:
        """Take note that lines flowed again so many seconds after faults of these kinds."""
        self.waits.append(waited)
        for kind in kinds:
            self.longest[kind] = max(waited, self.longest.get(kind, 0.0))

    def find_emptiness(self, shape: Shape) -> None:
        """Add a finding for each reason why this run, had it passed, would have shown nothing."""
        if not self.faults:
            self.findings.append("nothing was hit")
        for host, verdict in self.verdicts.items():
            wanted = int(_FEWEST * shape.rate * self.writing)
            if verdict.written <= wanted:
                self.findings.append(
                    f"{host} wrote {verdict.written} lines, at least {wanted} show something"
                )
        killed = sum(self.faults[kind] for kind in _ENDS_A_PROGRAM)
        if self.starts < bool(killed):
            self.findings.append(f"{killed} programs were killed, and none was started again")

    def as_json(self) -> dict[str, Any]:
        """Return what goes into the run log and result.json."""
        return {
            "seed": self.seed,
            "strokes": self.strokes,
            "faults": dict(self.faults),
            "not_struck": dict(self.not_struck),
            "seconds": round(self.seconds, 1),
            "starts": self.starts,
            "waits": [round(wait, 1) for wait in self.waits],
            "longest": {kind: round(wait, 1) for kind, wait in self.longest.items()},
            "lines": {
                name: sum(getattr(verdict, name) for verdict in self.verdicts.values())
                for name in _LINES
            },
            "destroyed": self.destroyed,
            "reported": self.reported,
            "findings": self.findings,
        }


def summary(result: Mapping[str, Any]) -> str:
    """Return in lines what a result says, as `Result.as_json` gives it."""
    faults, misses = (sum(result[name].values()) for name in ("faults", "not_struck"))
    lines = ", ".join(f"{count:,} {name}" for name, count in result["lines"].items())
    told = [
        f"{faults} faults in {result['strokes']} strokes, {misses} had nothing to hit",
        f"lines: {lines}",
        f"lines flowed again after {max(result['waits'], default=0):.1f} s at the longest",
        *(f"FINDING: {finding}" for finding in result["findings"]),
        f"{'failed' if result['findings'] else 'passed'} after {result['seconds']:.0f} s",
    ]
    return "\n".join(told)
