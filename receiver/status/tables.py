"""The status as tables for people and as JSON for programs. Asks nobody."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta

from broker.app import columns as aligned
from broker.app.durations import format_duration
from broker.app.printable import printable
from broker.app.sizes import format_size
from receiver.status.status import PartitionStatus, Revision, Status

__all__ = ["offsets_json", "offsets_table", "status_json", "status_table"]

History = Mapping[int, Sequence[Revision]]
_RUNNING = {True: "yes", False: "no", None: "?"}


def status_json(status: Status) -> str:
    """Write the status for programs; the keys are the field names, and stay."""
    return json.dumps({**asdict(status), "output": str(status.output)}, indent=2)


def status_table(status: Status, *, with_hosts: bool) -> str:
    """Write the status for people."""
    head = (
        *("partition", "next", "waiting", "behind", "lines", "bytes", "lines/s", "batch"),
        *("epoch", "running", "owner", "last commit"),
    )
    parts = [_columns([head, *map(_status_row, status.partitions)])]
    if troubles := _troubles(status.partitions):
        parts.append("\n".join(troubles))
    if files := status.files:
        size = format_size(sum(file.size for file in files))
        closed = sum(file.segments for file in files)
        parts.append(f"{status.output}: {len(files):,} live files, {closed:,} closed, {size}")
    if with_hosts and files:
        rows = [(f.path, f.last_line or "none", f"{f.size:,}", str(f.segments)) for f in files]
        parts.append(_columns([("file", "last line", "bytes", "closed"), *rows]))
    if status.gaps:
        gaps = [(gap.host, str(gap.gaps), f"{gap.size:,}") for gap in status.gaps]
        parts.append(_columns([("host", "gaps", "bytes that never came"), *gaps]))
    return "\n\n".join(parts)


def _status_row(p: PartitionStatus) -> tuple[str, ...]:
    behind = (
        "?" if p.lag_seconds is None else format_duration(timedelta(seconds=round(p.lag_seconds)))
    )
    return (
        *(str(p.partition), str(p.next), str(p.waiting), behind, f"{p.lines:,}", f"{p.size:,}"),
        "" if p.lines_per_second is None else f"{p.lines_per_second:,.0f}",
        "" if p.batch_seconds is None else f"{p.batch_seconds * 1000:.0f} ms",
        *_ownership(p),
    )


def _ownership(p: PartitionStatus) -> tuple[str, ...]:
    owner = "UNREADABLE" if p.error else p.owner or "nobody yet"
    return str(p.epoch), _RUNNING[p.running], owner, p.committed_at or "never"


def _troubles(partitions: Sequence[PartitionStatus]) -> list[str]:
    blocked = [
        f"partition {p.partition} is blocked since {p.blocked.since}, {p.blocked.cause}: {p.blocked.detail}"
        for p in partitions
        if p.blocked
    ]
    return [printable(line) for line in (*blocked, *_unreadable(partitions))]


def _unreadable(partitions: Sequence[PartitionStatus]) -> list[str]:
    return [f"partition {p.partition} cannot be received: {p.error}" for p in partitions if p.error]


def offsets_json(partitions: Sequence[PartitionStatus], history: History) -> str:
    """Write the offsets for programs."""
    return json.dumps({"partitions": [_entry(p, history) for p in partitions]}, indent=2)


def _entry(p: PartitionStatus, history: History) -> dict[str, object]:
    kept = (
        "partition",
        "next",
        "epoch",
        "owner",
        "lines",
        "committed_at",
        "first",
        "until",
        "error",
    )
    entry = {name: value for name, value in asdict(p).items() if name in kept}
    entry |= {"is_running": p.running, "behind": p.waiting}
    if p.partition in history:
        entry["history"] = [asdict(one) for one in history[p.partition]]
    return entry


def offsets_table(partitions: Sequence[PartitionStatus], history: History) -> str:
    """Write the offsets for people."""
    head = (
        "partition",
        "next",
        "behind",
        "stream",
        "lines",
        "epoch",
        "running",
        "owner",
        "committed",
    )
    rows = [
        (*(str(p.partition), str(p.next), str(p.waiting), _held(p), f"{p.lines:,}"), *_ownership(p))
        for p in partitions
    ]
    parts = ["\n".join([_columns([head, *rows]), *map(printable, _unreadable(partitions))])]
    if history:
        steps = [
            (*map(str, (number, s.revision, s.time, s.next, s.epoch)), s.error or s.owner)
            for number, revisions in history.items()
            for s in revisions
        ]
        parts.append(
            _columns([("partition", "revision", "time", "next", "epoch", "owner"), *steps])
        )
    return "\n\n".join(parts)


def _held(p: PartitionStatus) -> str:
    return f"{p.first}-{p.until - 1}" if p.until > p.first else "empty"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(aligned.columns(rows, left=range(len(rows[0]))))
