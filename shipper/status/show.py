"""What `logshipper status` shows: what running agents say of themselves, else what the broker has of a host beside its files."""

import json
import os
from collections.abc import Sequence

from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.client.bucket import read
from broker.client.connection import Connection
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from shipper.positions import Cursor, Positions, PositionsUnreadable
from shipper.publish.rebuild import ReadBack, rebuild
from shipper.status.report import FileReport, HostReport, rfc3339

__all__ = ["render", "render_json", "stored"]


async def stored(connection: Connection, host: str) -> HostReport:
    """Return the positions of a host as the broker has them, with what was shipped since the snapshot, beside the files of this machine.

    Raises `OperatorError` where it has none that can be read, `Rejected`, `ConnectionLost`.
    """
    entry = await read(connection, POSITIONS_BUCKET, positions_key(host))
    if entry is None:
        raise OperatorError(
            f"no agent of {host} runs here, and the broker has no positions of it; check --host"
        )
    try:
        positions = await rebuild(ReadBack(connection, host), Positions.decode(entry.value))
    except PositionsUnreadable as error:
        raise OperatorError(
            f"the snapshot {POSITIONS_BUCKET}/{positions_key(host)} cannot be read: {error}; "
            "the next start of the shipper rebuilds it from the stream"
        ) from None
    return HostReport(
        host=host,
        agent=positions.agent,
        sequence=positions.sequence,
        running=False,
        files=tuple(map(_file, positions.files.values())),
        saved=entry.time,
    )


def _file(cursor: Cursor) -> FileReport:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # gone, or not ours to see; that's fine, its position still shows
    return FileReport(
        path=cursor.path,
        file=cursor.file,
        state="gone" if size is None else "saved",
        reason="not running",
        size_bytes=size,
        position_bytes=cursor.offset,
        behind_bytes=None if size is None else max(0, size - cursor.offset),
        last_read=rfc3339(cursor.seen),
    )


def render_json(hosts: Sequence[HostReport]) -> str:
    """Return the reports as JSON: a list with an object per host."""
    return json.dumps([host.document() for host in hosts], indent=2)


def render(hosts: Sequence[HostReport]) -> str:
    """Return the reports as a table per host, the files that are furthest behind first."""
    return "\n\n".join(map(_table, hosts))


def _table(host: HostReport) -> str:
    rows: list[tuple[str, ...]] = [
        ("size", "position", "behind", "waits", "rate", "lines/s", "state", "path")
    ]
    rows += [
        _row(file, host)
        for file in sorted(host.files, key=lambda f: (-(f.behind_bytes or 0), f.path))
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    lines = [
        "  ".join(
            [
                *(cell.rjust(width) for cell, width in zip(row[:6], widths, strict=False)),
                row[6].ljust(widths[6]),
                row[7],
            ]
        )
        for row in rows
    ]
    troubles = [
        f"not followed: {printable(one.path)}: {printable(one.reason)}" for one in host.troubles
    ]
    passed = len(host.passed_over)
    if passed:
        troubles.append(f"not followed: {passed} files that were not written for --ignore-older")
    return "\n".join(map(printable, [*_head(host), *lines, *troubles]))


def _head(host: HostReport) -> list[str]:
    behind = f"{len(host.files)} files, {format_size(host.behind_bytes)} behind"
    agent = f"agent {host.agent or '-'}, sequence {host.sequence}"
    if not host.running:
        return [f"host {host.host}: not running; {agent}, saved {host.saved}; {behind}"]
    since = f"up since {host.up_since}, last ack {host.last_ack or 'none yet'}"
    process = f"pid {host.pid} of user {host.user}"
    head = [f"host {host.host}: running, {process}, {since}; {agent}; {behind}"]
    if host.waiting_for:
        head.append(f"waiting for: {printable(host.waiting_for)}")
    if host.lost_bytes:
        lost = (f"{format_size(size)} ({cause})" for cause, size in host.lost_bytes.items())
        head.append(f"lost since then: {', '.join(lost)}")
    return head


def _row(file: FileReport, host: HostReport) -> tuple[str, ...]:
    # what all files wait for stands in the head
    reason = "" if file.reason == host.waiting_for or not host.running else file.reason
    path = printable(file.path)
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        _age(file.oldest_unshipped_seconds),
        "-" if not file.bytes_per_second else f"{format_size(round(file.bytes_per_second))}/s",
        "-" if not file.lines_per_second else f"{file.lines_per_second:,.1f}",
        file.state,
        f"{path} ({printable(reason)})" if reason else path,
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"
