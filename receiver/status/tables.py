"""The status as tables for people and as JSON for programs. Asks nobody."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

from broker.app.durations import format_duration
from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.app.table import aligned
from receiver.status.status import PartitionStatus, Status

__all__ = ["partitions_json", "partitions_table", "status_json", "status_table"]

_RUNNING = {True: "yes", False: "no", None: "?"}


def status_json(status: Status) -> str:
    """Write the status for programs; the keys are the field names, and stay."""
    return json.dumps({**asdict(status), "state_dir": str(status.state_dir)}, indent=2)


def partitions_json(partitions: Sequence[PartitionStatus]) -> str:
    """Write the status of partitions for programs, as it stands in that of all."""
    return json.dumps({"partitions": list(map(asdict, partitions))}, indent=2)


def partitions_table(partitions: Sequence[PartitionStatus]) -> str:
    """Write the status of partitions for people."""
    head = (
        *("partition", "next", "behind", "oldest", "lines", "bytes", "lines/s", "batch"),
        *("epoch", "running", "owner", "last commit"),
    )
    rows = _columns([head, *map(_status_row, partitions)])
    return "\n\n".join(filter(None, (rows, "\n".join(_troubles(partitions)))))


def status_table(status: Status, *, with_hosts: bool) -> str:
    """Write the status for people."""
    parts = [partitions_table(status.partitions)]
    if files := status.files:
        size = format_size(sum(file.size for file in files))
        closed = sum(file.segments for file in files)
        parts.append(
            f"stores in {status.state_dir}: {len(files):,} live files, {closed:,} closed, {size}"
        )
    if with_hosts and files:
        rows = [(f.path, f.last_line or "none", f"{f.size:,}", str(f.segments)) for f in files]
        parts.append(_columns([("file", "last line", "bytes", "closed"), *rows]))
    if status.gaps:
        gaps = [(gap.host, str(gap.gaps), f"{gap.size:,}") for gap in status.gaps]
        parts.append(_columns([("host", "gaps", "bytes that never came"), *gaps]))
    return "\n\n".join(parts)


def _status_row(p: PartitionStatus) -> tuple[str, ...]:
    seconds = p.behind_seconds
    oldest = "?" if seconds is None else format_duration(timedelta(seconds=round(seconds)))
    return (
        *(str(p.partition), str(p.next), str(p.behind), oldest, f"{p.lines:,}", f"{p.size:,}"),
        "" if p.lines_per_second is None else f"{p.lines_per_second:,.0f}",
        "" if p.batch_seconds is None else f"{p.batch_seconds * 1000:.0f} ms",
        str(p.epoch),
        _RUNNING[p.running],
        "UNREADABLE" if p.error else p.owner or "nobody yet",
        p.committed_at or "never",
    )


def _troubles(partitions: Sequence[PartitionStatus]) -> list[str]:
    blocked = [
        f"partition {p.partition} is blocked since {p.blocked.since}, {p.blocked.cause}: {p.blocked.detail}"
        for p in partitions
        if p.blocked
    ]
    unreadable = [
        f"partition {p.partition} cannot be received: {p.error}" for p in partitions if p.error
    ]
    return [printable(line) for line in (*blocked, *unreadable)]


def _columns(rows: Sequence[Sequence[str]]) -> str:
    return aligned(rows[0], rows[1:], left=range(len(rows[0])))
