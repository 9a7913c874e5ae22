"""What a verification found, for people and for programs. Values and words only."""

import json
from dataclasses import dataclass

from broker.app.printable import printable
from broker.app.sizes import format_size
from receiver.verify.outcome import Examined, HostReport

__all__ = ["Report", "as_json", "as_text"]


@dataclass(frozen=True, slots=True)
class Report:
    """All units; `unclaimed` are partitions that no receiver has received yet."""

    units: tuple[Examined, ...]
    unclaimed: tuple[int, ...]

    @property
    def is_well(self) -> bool:
        """Whether every expected byte is in its place, or was removed to make room."""
        return all(host.is_well for unit in self.units for host in unit.reports)


def as_json(report: Report) -> str:
    """Write a report for programs: sizes in bytes, hosts that differ or hold less than the stream."""
    hosts = [
        {
            "partition": host.partition,
            "host": host.host,
            "file": host.live,
            "bytes": host.size,
            "pruned_bytes": host.pruned,
            "missing_segments": host.holes,
            "differences": [
                {
                    "kind": place.difference.kind.value,
                    "lines": place.difference.lines,
                    "bytes": place.difference.size,
                    "first": place.where,
                }
                for place in host.places
            ],
        }
        for unit in report.units
        for host in unit.reports
    ]
    return json.dumps({"well": report.is_well, **_totals(report), "hosts": hosts}, indent=2)


def as_text(report: Report) -> str:
    """Write a report for people: a line per difference, and one for everything."""
    lines = [line for unit in report.units for host in unit.reports for line in _of_host(host)]
    totals = _totals(report)
    told = f"{totals['hosts_compared']} hosts, {format_size(int(str(totals['bytes'])))}"
    lines.append(f"{'all well' if report.is_well else 'DIFFERENCES'}: {told} compared")
    if report.unclaimed:
        numbers = ", ".join(map(str, report.unclaimed))
        lines.append(f"not compared, as no receiver has claimed them yet: partitions {numbers}")
    return "\n".join(map(printable, lines))


def _of_host(host: HostReport) -> list[str]:
    name = host.host
    told = [
        f"{name}: {place.difference.kind.value}: {place.difference.lines} lines, {place.difference.size} bytes, "
        f"the first in {place.where}"
        for place in host.places
    ]
    if host.holes:
        told.append(f"{name}: segments that are not there: {', '.join(map(str, host.holes))}")
    if host.pruned:
        told.append(f"{name}: pruned: the oldest {host.pruned} bytes are no longer kept")
    return told


def _totals(report: Report) -> dict[str, object]:
    return {
        "hosts_compared": sum(unit.hosts for unit in report.units),
        "bytes": sum(unit.size for unit in report.units),
        "set_aside": sum(unit.refused for unit in report.units),
        "unclaimed": list(report.unclaimed),
    }
