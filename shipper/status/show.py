"""What `logshipper status` and `logshipper check` find out where no agent runs, and reports as a table. Changes nothing."""

import itertools
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from rich.console import RenderableType

from nats_logship.app.exits import OperatorError
from nats_logship.app.table import table
from nats_logship.app.text import format_count
from nats_logship.app.units import format_duration, format_size
from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.config import read_streams, require_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.message import EXPECTED_SEQUENCE, IMPOSSIBLE_SEQUENCE
from nats_logship.wire.positions import Cursor, Positions
from nats_logship.wire.streams import stream_names
from nats_logship.wire.subjects import SHARED_NAME, Subject, is_shared_name
from shipper.publish.messages import HostMessages, Snapshots
from shipper.publish.waiting import connection_for, explained
from shipper.settings import ShipperSettings
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection
from shipper.sources.files.sampling import size_at
from shipper.sources.files.scan import scan
from shipper.sources.notices import NoticeKind
from shipper.status.live import ask
from shipper.status.report import FileStatus, HostReport

FINE, LEFT_OUT, DOUBTFUL, BAD = "ok ", "-- ", "!! ", "BAD"
Finding = tuple[str, str]
"""What a finding means for the agent, and a text, which may hold paths of any characters."""

_HEADS = ("size", "position", "unshipped", "oldest", "state", "path")


@asynccontextmanager
async def _connected(settings: ShipperSettings, host: str) -> AsyncIterator[Connection]:
    """Connect once; whatever the broker answers or does not answer is an `OperatorError`."""
    connection = connection_for(settings, host)
    try:
        await connection.connect()
        yield connection
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(explained(error, host, settings.credential_host)[1]) from None
    finally:
        await connection.close()


async def stored(settings: ShipperSettings, host: str) -> HostReport:
    """Return a host's positions as the broker has them, with the sizes of files here; raises `OperatorError` for none."""
    try:
        async with _connected(settings, host) as connection:
            positions, saved = await _stored_positions(connection, host)
    except OperatorError as error:
        raise OperatorError(f"no agent of {host} runs here, and {error}") from None
    files = tuple(map(_file, positions.files.values()))
    if not (saved or files):
        raise OperatorError(
            f"no agent of {host} runs here, and the broker has no positions of it; check --host"
        )
    return HostReport(host=host, running=False, files=files, saved=saved or None)


async def _stored_positions(connection: Connection, host: str) -> tuple[Positions, str]:
    """Return the positions of a host as the broker has them, and when they were saved last."""
    snapshots = Snapshots(connection, host)
    saved, streams = await snapshots.read(), await read_streams(connection)
    ends = dict.fromkeys(stream_names(streams), 0)
    rebuilt = await HostMessages(connection, host, streams).rebuild(saved, ends)
    return rebuilt.positions, snapshots.time


def _file(cursor: Cursor) -> FileStatus:
    size = size_at(cursor)
    return FileStatus(
        path=cursor.path,
        state="gone" if size is None else "saved",
        size_bytes=size,
        position_bytes=cursor.offset,
        behind_bytes=None if size is None else max(0, size - cursor.offset),
    )


def shown(host: HostReport) -> list[RenderableType]:
    """Return a report as lines and a table, the files that are furthest behind first."""
    files = sorted(host.files, key=lambda file: (-(file.behind_bytes or 0), file.path))
    head = f"host {host.host}: not running, saved {host.saved or 'never'}; {host.summary}"
    if host.running:
        last = f"last ack {host.last_ack or 'none yet'}"
        head = f"host {host.host}: running, pid {host.pid}, {last}; {host.summary}"
    unhealthy = f"unhealthy: {host.unhealthy}" if host.unhealthy else ""
    return [
        *filter(None, (head, host.paused, unhealthy)),
        table(_HEADS, list(map(_row, files)), left=(4, 5)),
        *(f"not followed: {trouble}" for trouble in host.troubles),
        *(f"may be lost: {text}" for text in host.unread),
    ]


def _row(file: FileStatus) -> tuple[str, ...]:
    waits = file.oldest_unshipped_seconds
    return (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
        "-" if waits is None else format_duration(timedelta(seconds=round(waits))),
        file.state,
        file.path,
    )


async def check(settings: ShipperSettings, host: str) -> list[Finding]:
    """Check files and broker; nothing is stored."""
    files = [] if settings.is_input else [*check_files(settings.selection)]
    if is_shared_name(host):
        files.insert(0, (LEFT_OUT, SHARED_NAME.format(host)))
    try:
        broker = await _check_broker(settings, host)
    except (OperatorError, ValueError) as error:
        broker = [(BAD, str(error))]
    return [*files, *broker]


def check_files(selection: Selection) -> Iterator[Finding]:
    """Say of each file that is selected whether it would be followed, and why not."""
    shown = scan(selection, {})
    paths = {entry.path for entry in shown.entries}
    for entry in scan(replace(selection, excluded=()), {}).entries:
        if not entry.wanted:
            continue
        level, text = FINE, format_count(entry.size, "byte")
        if entry.path not in paths:
            level, text = LEFT_OUT, "left out by --exclude"
        elif not os.access(entry.path, os.R_OK):
            level, text = BAD, "cannot be read; check its permissions"
        elif selection.is_too_old(entry.modified, time.time_ns()):
            level, text = LEFT_OUT, "older than --ignore-older, unless it was followed before"
        yield level, f"{entry.path}: {text}"
    for trouble in shown.troubles:
        level = LEFT_OUT if trouble.kind is NoticeKind.REFUSED else BAD
        yield level, f"{trouble.path}: {trouble.text}"


async def _check_broker(settings: ShipperSettings, host: str) -> list[Finding]:
    async with _connected(settings, host) as connection:
        layout = await require_layout(connection)
        subject = Subject.for_host(host, layout.partitions)
        among = format_count(layout.partitions, "partition")
        place = f"stream {layout.stream_of(subject.partition)}, {subject} of {among}"
        may = await _may_publish(connection, subject)
        return [
            (FINE, f"broker at {connection.servers}: {place}"),
            (FINE if may else BAD, f"this user may {'' if may else 'not '}publish to {subject}"),
            *[(DOUBTFUL, text) for text in await _unread(settings, connection, host)],
        ]


async def _unread(settings: ShipperSettings, connection: Connection, host: str) -> Iterable[str]:
    """Return what the agent here did not find, or else what one that started now would not."""
    agents, _ = await ask(host)
    if agents or settings.is_input:
        return [text for agent in agents for text in agent.unread]
    positions, _ = await _stored_positions(connection, host)
    ids = itertools.count()
    follower = Follower(
        settings.selection,
        positions.files.values(),
        new_id=lambda: str(next(ids)),
        clock=time.time_ns,
        listen=False,
    )
    notices = await follower.scan()
    await follower.close()
    return [f"{one.path}: {one.text}" for one in notices if one.kind is NoticeKind.UNREAD]


async def _may_publish(connection: Connection, subject: Subject) -> bool:
    """Whether this user may publish to a subject, by a message that the stream always refuses; raises `Rejected`, `ConnectionLost`."""
    try:
        await connection.ask(str(subject), b"", {EXPECTED_SEQUENCE: str(IMPOSSIBLE_SEQUENCE)})
    except Denied:
        return False
    except Rejected as error:
        if not error.is_conflict:
            raise
    return True
