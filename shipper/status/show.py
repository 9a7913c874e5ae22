"""The table and the JSON of `logshipper status`."""

import json
from collections.abc import Sequence

from broker.app.columns import columns
from broker.app.printable import printable
from broker.app.sizes import format_size
from shipper.status.report import FileReport, HostReport

__all__ = ["render", "render_json"]

_HEADS = ("size", "position", "behind", "waits", "rate", "lines/s", "state", "path")


def render_json(hosts: Sequence[HostReport]) -> str:
    """Return the reports as JSON: a list with an object per host."""
    return json.dumps([host.document() for host in hosts], indent=2)


def render(hosts: Sequence[HostReport]) -> str:
    """Return the reports as a table per host, the files that are furthest behind first."""
    return "\n\n".join(map(_table, hosts))


def _table(host: HostReport) -> str:
    files = sorted(host.files, key=lambda file: (-(file.behind_bytes or 0), file.path))
    rows = [_HEADS, *(_row(file, host) for file in files)]
    troubles = [f"not followed: {one.path}: {one.reason}" for one in host.troubles]
    if passed := len(host.passed_over):
        troubles.append(f"not followed: {passed} files that were not written for --ignore-older")
    lines = [*_head(host), *columns(rows, left=(6, 7)), *troubles]
    return "\n".join(map(printable, lines))


def _head(host: HostReport) -> list[str]:
    agent = f"agent {host.agent or '-'}, sequence {host.sequence}"
    if not host.running:
        return [f"host {host.host}: not running; {agent}, saved {host.saved}; {host.summary}"]
    since = f"up since {host.up_since}, last ack {host.last_ack or 'none yet'}"
    process = f"pid {host.pid} of user {host.user}"
    head = [f"host {host.host}: running, {process}, {since}; {agent}; {host.summary}"]
    if host.unhealthy_reason:
        head.append(f"unhealthy: {host.unhealthy_reason}")
    if host.lost_bytes:
        lost = (f"{format_size(size)} ({cause})" for cause, size in host.lost_bytes.items())
        head.append(f"lost since then: {', '.join(lost)}")
    return head


def _row(file: FileReport, host: HostReport) -> tuple[str, ...]:
    # what all files wait for stands in the head
    reason = "" if file.reason == host.waiting_for or not host.running else file.reason
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        _age(file.oldest_unshipped_seconds),
        f"{format_size(round(file.bytes_per_second))}/s" if file.bytes_per_second else "-",
        f"{file.lines_per_second:,.1f}" if file.lines_per_second else "-",
        file.state,
        f"{file.path} ({reason})" if reason else file.path,
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"
