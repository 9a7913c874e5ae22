"""What `logreceiver verify` has found, for people and for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from nats_logship.app.text import format_count, printable
from nats_logship.app.units import format_size

_MOST_NAMES = 5  # hosts that are named


@dataclass(frozen=True, slots=True)
class DifferingFile:
    """A received file that differs from the stream: how many lines, and where they begin to.

    `same` is None if more than a million lines differ. `path` is the file with the first
    difference, at `byte`, in its line `line`, which counts from 1.
    """

    partition: int
    host: str
    live: str  # the path of the live file below the output folder
    expected: int
    received: int
    same: int | None
    path: str
    line: int
    byte: int


@dataclass(slots=True)
class VerifyReport:
    """What was compared, and which files differ."""

    moved: list[str] = field(default_factory=list)  # hosts that were not compared
    hosts: int = 0  # that were compared
    size: int = 0  # bytes of their lines
    unclaimed: list[int] = field(default_factory=list)  # partitions without a store here
    files: list[DifferingFile] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether something was compared, and no file differs."""
        return self.hosts > 0 and not self.files

    def as_json(self) -> str:
        """Return the report for programs."""
        return json.dumps({"well": not self.files, **asdict(self)}, indent=2)

    def as_text(self) -> str:
        """Return the report for people: a line for each file that differs, then a summary."""
        return "\n".join(map(printable, [*map(_describe_file, self.files), *self._summarize()]))

    def _summarize(self) -> Sequence[str]:
        verdict = "DIFFERENCES" if self.files else "all well"
        hosts, size = format_count(self.hosts, "host"), format_size(self.size)
        lines = [f"{verdict}: {hosts}, {size} compared" if self.hosts else "nothing was compared"]
        if self.unclaimed:
            numbers = ", ".join(map(str, self.unclaimed))
            is_one = len(self.unclaimed) == 1
            noun, it = ("partition", "it") if is_one else ("partitions", "them")
            lines.append(
                f"not compared: {noun} {numbers}, nothing is here: no host ships to {it} yet, or "
                f"another receiver has {it}"
            )
        if self.moved:
            names = ", ".join(self.moved[:_MOST_NAMES])
            lines.append(
                f"not compared: {format_count(len(self.moved), 'host')}, such as {names}, with "
                "lines in several partitions, by a move or by clients that are no shippers"
            )
        return lines


def _describe_file(one: DifferingFile) -> str:
    where = f"first difference in {one.path} at line {one.line}, byte {one.byte}"
    return f"{one.live}: {_describe_lines(one)}; {where}"


def _describe_lines(one: DifferingFile) -> str:
    if one.same is None:
        return f"more than a million of {format_count(one.expected, 'line')} differ"
    missing, more = one.expected - one.same, one.received - one.same
    changed = min(missing, more)
    if not (missing or more):
        return f"all {format_count(one.expected, 'line')} are there, but in another order"
    counts = {"different": changed, "missing": missing - changed, "too many": more - changed}
    differences = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{one.same} of {format_count(one.expected, 'line')} the same, {differences}"
