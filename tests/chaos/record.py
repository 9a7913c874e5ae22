"""The record of all runs: a line of JSON each, in a file that is only ever appended to. Knows no world and no clock.

Runs that failed stay in it, with the commit that mended what they found. What other suites make of the same schedule comes into
the same file, under their names.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.oracle import Verdict

__all__ = ["LINES", "Entry", "append", "lines_of", "read", "write"]

LINES = (
    "written",
    "received",
    "missing",
    "repeated",
    "reordered",
    "torn",
    "altered",
    "foreign",
)
"""What is counted of lines, as the oracle names it."""
_FINDING = 300  # characters
_FOLDERS = re.compile(r"(?<![\w.…])/(?:[^/\s'\"]+/)+(?=[^/\s'\"]+/[^/\s'\"]*)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One run.

    `suite` is "logship", or the name of another one. `date` is when it began (RFC 3339, UTC). `code` stands for what was
    run, whatever became of the commit; it is `dirty` if more than the commit was. `shape` is `Shape.as_json`. `seconds`
    is how long it took. `faults`, `not_struck` count by kind; `waits` has the seconds until lines flowed again after
    each stroke, `longest` the longest of them by each kind of fault in the stroke. `lines` counts what `LINES` names.
    `destroyed` and `reported` are bytes: taken from the suite on purpose, and told by it as lost. `contest` names a schedule that
    was thrown at several suites. `lineage` tells whether the commit (or its code) is one of the project's: "known" or "unknown",
    empty until somebody has looked.
    """

    suite: str
    date: str
    seed: int
    shape: Mapping[str, Any]
    seconds: float
    strokes: int
    faults: Mapping[str, int]
    not_struck: Mapping[str, int]
    waits: tuple[float, ...]
    longest: Mapping[str, float]
    lines: Mapping[str, int]
    destroyed: int = 0
    reported: int = 0
    findings: tuple[str, ...] = ()
    commit: str = ""
    code: str = ""
    dirty: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    contest: str = ""
    mended_by: str = ""
    lineage: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object; a finding is cut to its first line, and paths in it to their last two names."""
        short = tuple(
            _FOLDERS.sub("…/", finding.partition("\n")[0])[:_FINDING] for finding in self.findings
        )
        return asdict(replace(self, findings=short))

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "Entry":
        """Read what `as_json` has made; raises TypeError and KeyError where it has not."""
        lists = {name: tuple(entry[name]) for name in ("waits", "findings")}
        return cls(**{**entry, **lists})


def lines_of(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Return the sums over all hosts, by the names in `LINES`."""
    sums: Counter[str] = Counter(dict.fromkeys(LINES, 0))
    for verdict in verdicts:
        sums.update({name: getattr(verdict, name) for name in LINES})
    return dict(sums)


def append(path: Path, entry: Entry) -> None:
    """Add a run to the record, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(entry))


def read(path: Path) -> list[Entry]:
    """Return all runs, as they came; raises ValueError with the number of a line that is none."""
    entries = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            entries.append(Entry.from_json(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}:{number}: no run of the record: {error!r}") from error
    return entries


def write(path: Path, entries: Iterable[Entry]) -> None:
    """Exchange the whole record."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text("".join(map(_line, entries)), "utf-8")
    fresh.replace(path)


def _line(entry: Entry) -> str:
    return json.dumps(entry.as_json(), ensure_ascii=False) + "\n"
