"""`logshipper status`: the positions that the broker has of a host while no agent runs, and reports as a table or JSON."""

import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from broker.app.exits import OperatorError
from broker.app.table import aligned
from broker.app.units import format_duration, format_size
from broker.app.untrusted import printable
from broker.client.bucket import read
from broker.client.config import read_streams
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.wire.positions import Cursor, Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from shipper.publish.messages import HostMessages
from shipper.session import connection_for, reasons_for
from shipper.settings import ShipperSettings
from shipper.status.report import FileStatus, HostReport
from shipper.tail.notices import rfc3339

__all__ = ["connected", "render", "render_json", "stored"]

_HEADS = ("size", "position", "behind", "waits", "state", "path")


@asynccontextmanager
async def connected(settings: ShipperSettings, host: str) -> AsyncIterator[Connection]:
    """Connect once; whatever the broker answers or does not answer is an `OperatorError`."""
    connection = connection_for(settings, host)
    try:
        await connection.once()
        yield connection
    except ConnectionLost as error:
        raise OperatorError(f"the broker at {connection.servers} did not answer: {error}") from None
    except Rejected as error:
        raise OperatorError(reasons_for(settings, host)(error)) from None
    finally:
        await connection.close()


async def stored(settings: ShipperSettings, host: str) -> HostReport:
    """Return the positions of a host as the broker has them, beside the sizes of the files on this machine.

    Raises `OperatorError` where the broker has none, or does not tell.
    """
    try:
        async with connected(settings, host) as connection:
            return await _stored(connection, host)
    except OperatorError as error:
        raise type(error)(f"no agent of {host} runs here, and {error}") from None


async def _stored(connection: Connection, host: str) -> HostReport:
    entry = await read(connection, POSITIONS_BUCKET, positions_key(host))
    if entry is None:
        raise OperatorError("the broker has no positions of it; check --host")
    try:
        saved = Positions.decode(entry.value)
        messages = HostMessages(connection, host, await read_streams(connection))
        rebuilt = await messages.rebuild(saved, left=saved.left)
    except PositionsUnreadable as error:
        raise OperatorError(
            f"the snapshot {POSITIONS_BUCKET}/{positions_key(host)} cannot be read: {error}; "
            "the next start of the shipper rebuilds it from the stream"
        ) from None
    positions = rebuilt.positions
    files = tuple(map(_file, positions.files.values()))
    return HostReport(
        host, positions.agent, positions.sequence, running=False, files=files, saved=entry.time
    )


def _file(cursor: Cursor) -> FileStatus:
    size = None
    try:
        found = os.stat(cursor.path)  # noqa: PTH116 - a path of any bytes, as it was followed
        size = found.st_size if found.st_ino == cursor.identity.inode else None
    except OSError:
        pass  # deleted, or not ours to see: the position is shown all the same
    return FileStatus(
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
    files = sorted(host.files, key=lambda file: (-(file.behind_bytes or 0), file.path))
    rows = [_row(file, host) for file in files]
    troubles = [f"not followed: {one.path}: {one.reason}" for one in host.troubles]
    if passed := len(host.passed_over):
        troubles.append(f"not followed: {passed} files that were not written for --ignore-older")
    table = aligned(_HEADS, rows, left=(4, 5)).splitlines()
    lines = [*_head(host), *table, *troubles]
    return "\n".join(map(printable, lines))


def _head(host: HostReport) -> list[str]:
    agent = f"agent {host.agent or '-'}, sequence {host.sequence}"
    if not host.running:
        return [f"host {host.host}: not running; {agent}, saved {host.saved}; {host.summary}"]
    since = f"up since {host.up_since}, last ack {host.last_ack or 'none yet'}"
    process = f"pid {host.pid} of user {host.user}"
    head = [f"host {host.host}: running, {process}, {since}; {agent}; {host.summary}"]
    if host.paused:
        head.append(host.paused)
    if host.unhealthy:
        head.append(f"unhealthy: {host.unhealthy}")
    if host.lost_bytes:
        lost = (f"{format_size(size)} ({cause})" for cause, size in host.lost_bytes.items())
        head.append(f"lost since then: {', '.join(lost)}")
    return head


def _row(file: FileStatus, host: HostReport) -> tuple[str, ...]:
    # what all files wait for is in the head
    is_said = file.reason in {host.waiting_for, host.paused}
    reason = "" if is_said or not host.running else file.reason
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        _age(file.oldest_unshipped_seconds),
        file.state,
        f"{file.path} ({reason})" if reason else file.path,
    )


def _age(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return format_duration(
        timedelta(seconds=round(seconds / 60) * 60 if seconds > 3600 else round(seconds))
    )
