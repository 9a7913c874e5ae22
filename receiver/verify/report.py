"""What a verification found, for people and for programs. Values and words only."""

import json
from dataclasses import asdict, dataclass

from broker.app.printable import printable
from broker.app.sizes import format_size
from receiver.verify.examination import Examined, FileReport

__all__ = ["Report"]

_MOST_NAMED = 5  # hosts


@dataclass(frozen=True, slots=True)
class Report:
    """All partitions that were examined; `unclaimed` are those of which nothing was received into these folders yet.

    `moved` are the hosts in more than one partition.
    """

    examined: tuple[Examined, ...]
    unclaimed: tuple[int, ...]
    moved: frozenset[str] = frozenset()

    @property
    def is_well(self) -> bool:
        """Whether every expected line is in its place, or was removed to make room."""
        return not any(report.counts.total for report in self._reports)

    @property
    def hosts(self) -> int:
        """How many hosts were compared."""
        return sum(one.hosts for one in self.examined)

    @property
    def _reports(self) -> list[FileReport]:
        return [report for one in self.examined for report in one.reports]

    def as_json(self) -> str:
        """Write it for programs: sizes in bytes, files that differ or hold less than the stream."""
        files = [
            {
                "partition": report.partition,
                "host": report.host,
                "file": report.live,
                "bytes": report.size,
                "pruned_bytes": report.pruned,
                **asdict(report.counts),
                "first_difference": report.first if report.counts.total else "",
                "missing_segments": report.holes,
            }
            for report in self._reports
        ]
        totals = {
            "hosts_compared": self.hosts,
            "bytes": sum(one.size for one in self.examined),
            "set_aside": sum(one.refused for one in self.examined),
            "unclaimed": self.unclaimed,
            "moved": sorted(self.moved),
        }
        return json.dumps({"well": self.is_well, **totals, "hosts": files}, indent=2)

    def as_text(self) -> str:
        """Write it for people: a line for each file that differs, and one for everything."""
        lines = [line for report in self._reports for line in _of_file(report)]
        size = format_size(sum(one.size for one in self.examined))
        verdict = "all well" if self.is_well else "DIFFERENCES"
        lines.append(
            f"{verdict}: {self.hosts} hosts, {size} compared"
            if self.hosts
            else "nothing was compared"
        )
        if self.unclaimed:
            numbers = ", ".join(map(str, self.unclaimed))
            lines.append(
                f"not compared, as nothing of them was received here yet: partitions {numbers}"
            )
        if self.moved:
            hosts_left_out = ", ".join(sorted(self.moved)[:_MOST_NAMED])
            lines.append(
                "not compared, as the stream has their lines in more than one partition: "
                f"{len(self.moved)} hosts, such as {hosts_left_out}"
            )
        return "\n".join(map(printable, lines))


def _of_file(report: FileReport) -> list[str]:
    lines = []
    if report.counts.total:
        wrong = [f"{count} {kind}" for kind, count in asdict(report.counts).items() if count]
        told = f"{report.live}: {', '.join(wrong)}; the first difference is in {report.first}"
        if report.holes:
            told += f"; segments that are not there: {', '.join(map(str, report.holes))}"
        lines.append(told)
    if report.pruned:
        lines.append(f"{report.live}: pruned: the oldest {report.pruned} bytes are no longer kept")
    return lines
