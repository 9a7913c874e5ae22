"""What a run has shown, and what makes it count: a run in which nothing was hit, or hardly a line flowed, shows nothing."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bench.oracle import Verdict
from tests.chaos.shape import Shape

__all__ = ["Result"]

_LINES = (
    *("written", "received", "missing", "repeated", "reordered"),
    *("torn", "altered", "foreign"),
)
"""What is counted of lines, as the oracle names it."""

_FEWEST = 0.05  # of the lines that the shape's rate stands for
_ENDS_A_PROGRAM = ("kill-shipper", "kill-broker", "kill-driver", "kill-spark-worker")


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
