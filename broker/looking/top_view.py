"""`logbroker top` as lines of text that fit a screen. Decides only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from broker.app.columns import columns
from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.looking.hosts_view import silence
from broker.looking.traffic import HostFlow, PartitionFlow, Picture

__all__ = ["KEYS", "By", "Layout", "screen"]

KEYS = "q quit · sort hosts by: b bytes  l lines  n name  s silence  d delay"
"""The last line of a screen that is typed at."""
_LEAST_HOSTS = 5  # rows that partitions leave them


class By(Enum):
    """By what hosts are sorted; the values are the keys that say so."""

    BYTES = "b"
    LINES = "l"
    NAME = "n"
    SILENCE = "s"
    DELAY = "d"


_ORDERS: dict[By, Callable[[HostFlow], tuple[float, str]]] = {
    By.BYTES: lambda host: (-host.bytes, host.host),
    By.LINES: lambda host: (-host.lines, host.host),
    By.NAME: lambda host: (0.0, host.host),
    By.SILENCE: lambda host: (-host.silent, host.host),
    By.DELAY: lambda host: (-(host.delay or 0.0), host.host),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How it is shown: columns and rows of the screen, None for as many as there are.

    `silent` and `slow` are from where on a host is told of, in seconds: of no line, and from reading a line to its storage.
    `foot` is the last line.
    """

    width: int | None = None
    height: int | None = None
    by: By = By.BYTES
    silent: float = 300.0
    slow: float = 10.0
    foot: str = ""


def screen(picture: Picture, layout: Layout) -> list[str]:
    """Return the lines of the screen, none longer than its width and no more than its height."""
    head = _head(picture, layout)
    hosts = _hosts(picture.hosts, layout)
    room = None if layout.height is None else layout.height - len(head) - 2 - bool(layout.foot)
    if room is not None:
        room -= min(len(hosts), _LEAST_HOSTS + 1)
    lines = [*head, "", *_cut(_partitions(picture.partitions), room), "", *hosts]
    foot = [layout.foot] if layout.foot else []
    if layout.height is not None:
        lines = lines[: max(0, layout.height - len(foot))]
    lines += foot
    return [printable(line)[: layout.width] for line in lines]


def _head(picture: Picture, layout: Layout) -> list[str]:
    status = picture.status
    silent = sum(host.silent >= layout.silent for host in picture.hosts)
    slow = sum((host.delay or 0.0) >= layout.slow for host in picture.hosts)
    waiting = sum(one.waiting or 0 for one in picture.partitions)
    lines = [
        f"{status.server}  nats-server {status.version}  {status.now[:19]}Z",
        f"in {_rates(picture.lines_in, picture.bytes_in)}  out {_out(picture.partitions)}",
        f"waiting {waiting} messages",
        f"held {status.messages} messages, {format_size(status.bytes)}{_fill(picture)}",
        f"hosts {len(picture.hosts)}, {silent} silent and {slow} slow",
    ]
    if picture.skipped:
        lines.append(
            f"more comes in than can be looked at: {picture.skipped} messages are in no rate"
        )
    if picture.trouble:
        lines.append(f"NO ANSWER: {picture.trouble}")
    return lines


def _fill(picture: Picture) -> str:
    if picture.used is None:
        return ""
    full = "" if picture.full_in is None else f", full in {silence(picture.full_in)}"
    return f", {picture.used:.0%} of what it may hold{full}"


def _out(partitions: Sequence[PartitionFlow]) -> str:
    return _rates(
        sum(one.lines_out or 0.0 for one in partitions),
        sum(one.bytes_out or 0.0 for one in partitions),
    )


def _rates(lines: float, size: float) -> str:
    return f"{lines:,.0f} lines/s {format_size(round(size))}/s"


def _partitions(partitions: Sequence[PartitionFlow]) -> list[str]:
    head = ("part", "lines/s in", "in", "lines/s out", "out", "waiting", "oldest", "receiver")
    # where not all fit on the screen, those that have most to catch up with do
    rows = sorted(partitions, key=lambda one: (-(one.age or 0.0), one.partition))
    return columns([head, *map(_partition, rows)], left=(0, len(head) - 1))


def _partition(one: PartitionFlow) -> tuple[str, ...]:
    return (
        f"p{one.partition}",
        f"{one.lines_in:,.0f}",
        _speed(one.bytes_in),
        "-" if one.lines_out is None else f"{one.lines_out:,.0f}",
        _speed(one.bytes_out),
        "-" if one.waiting is None else str(one.waiting),
        "-" if one.age is None else silence(one.age),
        "UNREADABLE" if one.error else one.owner or "nobody yet",
    )


def _speed(size: float | None) -> str:
    return "-" if size is None else f"{format_size(round(size))}/s"


def _hosts(hosts: Sequence[HostFlow], layout: Layout) -> list[str]:
    head = ("host", "lines/s", "bytes/s", "silent", "delay", "")
    rows = sorted(hosts, key=_ORDERS[layout.by])[: layout.height]
    return columns([head, *(_host(host, layout) for host in rows)], left=(0, len(head) - 1))


def _host(host: HostFlow, layout: Layout) -> tuple[str, ...]:
    is_silent, is_slow = host.silent >= layout.silent, (host.delay or 0.0) >= layout.slow
    return (
        host.host,
        f"{host.lines:,.0f}",
        _speed(host.bytes),
        silence(host.silent),
        "-" if host.delay is None else f"{host.delay:.1f}s",
        " ".join(word for word, said in (("SILENT", is_silent), ("SLOW", is_slow)) if said),
    )


def _cut(lines: list[str], room: int | None) -> list[str]:
    """Return what fits, saying how many do not."""
    if room is None or len(lines) <= room:
        return lines
    kept = max(1, room - 1)
    return [*lines[:kept], f"and {len(lines) - kept} more partitions"]
