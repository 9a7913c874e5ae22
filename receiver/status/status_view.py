"""The status as a table for people and as JSON for programs. Asks nobody."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from broker.app.durations import format_duration
from broker.app.printable import printable
from broker.app.sizes import format_size
from receiver.status.columns import columns
from receiver.status.hosts import HostFile, HostGaps
from receiver.status.status import PartitionStatus

__all__ = ["Status"]

_RUNNING = {True: "yes", False: "no", None: "?"}


@dataclass(frozen=True, slots=True)
class Status:
    """All that is known: of the partitions, and of the files below an output folder that this machine can read."""

    partitions: Sequence[PartitionStatus]
    output: Path
    files: Sequence[HostFile]
    gaps: Sequence[HostGaps]

    def as_json(self) -> str:
        """Write it for programs; the keys are the field names, and stay."""
        return json.dumps(
            {
                "partitions": [asdict(partition) for partition in self.partitions],
                "output": str(self.output),
                "files": [asdict(file) for file in self.files],
                "gaps": [asdict(gap) for gap in self.gaps],
            },
            indent=2,
        )

    def as_table(self, *, with_hosts: bool) -> str:
        """Write it for people."""
        parts = [_partitions(self.partitions), *_blocked(self.partitions), *self._output()]
        if with_hosts and self.files:
            parts.append(_files(self.files))
        if self.gaps:
            parts.append(_gaps(self.gaps))
        return "\n\n".join(parts)

    def _output(self) -> list[str]:
        if not self.files:
            return []
        size = format_size(sum(file.size for file in self.files))
        closed = sum(file.segments for file in self.files)
        return [f"{self.output}: {len(self.files):,} live files, {closed:,} closed, {size}"]


def _partitions(partitions: Sequence[PartitionStatus]) -> str:
    head = (
        *("partition", "next", "waiting", "behind", "lines", "bytes", "lines/s", "batch"),
        *("epoch", "running", "owner", "last commit"),
    )
    return columns([head, *map(_row, partitions)])


def _row(p: PartitionStatus) -> tuple[str, ...]:
    rate = "" if p.lines_per_second is None else f"{p.lines_per_second:,.0f}"
    batch = "" if p.batch_seconds is None else f"{p.batch_seconds * 1000:.0f} ms"
    return (
        str(p.partition),
        str(p.next),
        "?" if p.waiting is None else str(p.waiting),
        _behind(p.lag_seconds),
        f"{p.lines:,}",
        f"{p.size:,}",
        rate,
        batch,
        str(p.epoch),
        _RUNNING[p.running],
        "UNREADABLE" if p.error else p.owner or "nobody yet",
        p.committed_at or "never",
    )


def _behind(seconds: float | None) -> str:
    return "?" if seconds is None else format_duration(timedelta(seconds=round(seconds)))


def _blocked(partitions: Sequence[PartitionStatus]) -> list[str]:
    lines = [
        f"partition {p.partition} is blocked since {p.blocked.since}, {p.blocked.cause}: {p.blocked.detail}"
        for p in partitions
        if p.blocked
    ] + [f"partition {p.partition} cannot be received: {p.error}" for p in partitions if p.error]
    return ["\n".join(map(printable, lines))] if lines else []


def _files(files: Sequence[HostFile]) -> str:
    rows = [
        (file.path, file.last_line or "none", f"{file.size:,}", str(file.segments))
        for file in files
    ]
    return columns([("file", "last line", "bytes", "closed"), *rows])


def _gaps(gaps: Sequence[HostGaps]) -> str:
    rows = [(gap.host, str(gap.gaps), f"{gap.size:,}") for gap in gaps]
    return columns([("host", "gaps", "bytes that never came"), *rows])
