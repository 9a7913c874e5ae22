"""Hosts as a table for people and as JSON for programs. Decides only."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum

from broker.app.columns import columns
from broker.app.durations import format_duration
from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.looking.census import MOST_COUNTED, HostTraffic
from broker.looking.message import rfc3339

__all__ = ["Order", "as_json", "as_table", "silence", "sorted_by"]


class Order(Enum):
    """By what hosts are sorted."""

    NAME = "name"
    MESSAGES = "messages"
    LINES = "lines"
    BYTES = "bytes"
    SILENT = "silent"


_KEYS: dict[Order, Callable[[HostTraffic], object]] = {
    Order.NAME: lambda host: host.host,
    Order.MESSAGES: lambda host: (-host.messages, host.host),
    Order.LINES: lambda host: (-host.lines, host.host),
    Order.BYTES: lambda host: (-host.bytes, host.host),
    Order.SILENT: lambda host: (host.last_seen, host.host),
}


def sorted_by(hosts: Sequence[HostTraffic], order: Order) -> list[HostTraffic]:
    """Return hosts in an order: names as they sort, numbers the largest first, the longest silence first."""
    return sorted(hosts, key=_KEYS[order])  # type: ignore[arg-type] # each of them is comparable with its like


def silence(seconds: float) -> str:
    """Write a length of time as people say it: to the second below an hour, then to the minute."""
    whole = int(seconds)
    return format_duration(timedelta(seconds=whole if whole < 3600 else whole // 60 * 60))


def as_json(hosts: Sequence[HostTraffic], now: int) -> str:
    """Return the hosts for programs; sizes in bytes, times in RFC 3339."""
    return json.dumps([host.as_json(now) for host in hosts], indent=2)


def as_table(hosts: Sequence[HostTraffic], now: int, total: int) -> str:
    """Return the hosts, `total` of which there are, for people; an estimate has a `~` in front."""
    head = (
        "host",
        "part",
        "messages",
        "lines",
        "bytes",
        "first seen",
        "last seen",
        "silent",
        "files",
    )
    table = columns([head, *(_row(host, now) for host in hosts)], left=(0, len(head) - 1))
    shown = "" if len(hosts) == total else f"{len(hosts)} of "
    notes = [f"{shown}{total} host{'' if total == 1 else 's'}"]
    if any(not host.exact for host in hosts):
        notes.append("~ estimated from the newest messages; --exact counts all of them")
    paused = Counter(host.paused for host in hosts if host.paused)
    notes += [f"{count} {printable(text)}" for text, count in paused.items()]
    return "\n".join([*table, "", *notes])


def _row(host: HostTraffic, now: int) -> tuple[str, ...]:
    about = "" if host.exact else "~"
    return (
        host.host,
        ",".join(f"p{number}" for number in host.partitions),
        str(host.messages),
        f"{about}{host.lines}",
        f"{about}{format_size(host.bytes)}",
        "-" if host.first_seen is None else f"{rfc3339(host.first_seen)[:19]}Z",
        f"{rfc3339(host.last_seen)[:19]}Z",
        silence(host.silent_for(now)) + (", paused" if host.paused else ""),
        host.file + _more(host.file_count),
    )


def _more(files: int) -> str:
    if files > MOST_COUNTED:
        return f", one of more than {MOST_COUNTED:,}"
    return f" and {files - 1} more" if files > 1 else ""
