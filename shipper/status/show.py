"""What `logshipper status` and `logshipper check` read if no agent runs, and how they show it."""

import itertools
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from nats_logship.app.exits import OperatorError
from nats_logship.app.text import format_count
from nats_logship.app.units import format_duration, format_size
from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.config import read_streams, require_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.message import EXPECTED_SEQUENCE, IMPOSSIBLE_SEQUENCE
from nats_logship.wire.positions import Cursor, Positions
from nats_logship.wire.streams import stream_names
from nats_logship.wire.subjects import Subject
from shipper.clock import Clock
from shipper.host_name import find_shared_name
from shipper.publish.messages import HostMessages, Snapshots
from shipper.publish.waiting import connection_for, explain
from shipper.settings import ShipperSettings
from shipper.sources.files.follower import Follower
from shipper.sources.files.paths import Selection
from shipper.sources.files.sampling import size_at
from shipper.sources.files.scan import scan
from shipper.sources.inputs import STANDARD_INPUT, find_inputs
from shipper.sources.notices import NoticeKind
from shipper.status.live import ask
from shipper.status.report import FileStatus, HostReport, measure

if TYPE_CHECKING:
    from rich.console import RenderableType


class Level(Enum):
    """What a result of `check` means for the agent, as it is printed."""

    FINE = "ok "
    LEFT_OUT = "-- "
    DOUBTFUL = "!! "
    BAD = "BAD"


class CheckLine(NamedTuple):
    """A result of `check`; the text may hold paths of any characters."""

    level: Level
    text: str


@asynccontextmanager
async def _connected(settings: ShipperSettings, host: str) -> AsyncIterator[Connection]:
    """Connect once; raises `OperatorError` if the broker refuses a request or does not answer."""
    connection = connection_for(settings, host)
    try:
        await connection.connect()
        yield connection
    except (ConnectionLost, Rejected) as error:
        raise OperatorError(explain(error, settings.explain_denial(host))[1]) from None
    finally:
        await connection.close()


async def read_saved_report(settings: ShipperSettings, host: str) -> HostReport:
    """Return the report of a host whose agent does not run: its positions in the broker.

    Sizes are those of the files on this machine. Raises `OperatorError` if there are no positions.
    """
    missing = f"no agent of {host} runs on this machine, and"
    try:
        async with _connected(settings, host) as connection:
            positions, saved = await _read_positions(connection, host)
            servers = connection.servers
    except OperatorError as error:
        raise OperatorError(f"{missing} {error}") from None
    files = tuple(map(_status_of, positions.files.values()))
    if not (saved or files):
        raise OperatorError(
            f"{missing} the broker at {servers} has no positions of {host}: nothing was shipped "
            "for it; check --host and --server, or see `logbroker hosts`"
        )
    return HostReport(host=host, running=False, files=files, saved=saved or None)


async def _read_positions(connection: Connection, host: str) -> tuple[Positions, str]:
    """Return the positions of a host in the broker, and the time of their last snapshot."""
    snapshots = Snapshots(connection, host)
    saved, streams = await snapshots.read(), await read_streams(connection)
    ends = dict.fromkeys(stream_names(streams), 0)
    rebuilt = await HostMessages(connection, host, streams).rebuild(saved, ends)
    return rebuilt.positions, snapshots.time


def _status_of(cursor: Cursor) -> FileStatus:
    is_file = cursor.unit == "bytes"
    size = size_at(cursor) if is_file else None
    state = "gone" if is_file and size is None else "saved"
    measures = measure(size, cursor.offset, cursor.unit)
    return FileStatus(path=cursor.path, state=state, **measures)


def render(host: HostReport) -> "list[RenderableType]":
    """Return a report as lines and a table; files that are furthest behind come first."""
    from nats_logship.app.table import table  # rich, which an agent with --once does not need

    files = sorted(
        host.files, key=lambda file: (-(file.behind_bytes or file.behind_entries or 0), file.path)
    )
    head = f"host {host.host}: not running, saved {host.saved or 'never'}; {host.summary}"
    if host.running:
        head = f"host {host.host}: {_describe_process(host)}; {host.summary}"
    unhealthy = f"unhealthy: {host.unhealthy}" if host.unhealthy else ""
    rate = host.rate if host.rate not in host.held_back else ""
    heads = ("size", "position", "unshipped", "oldest", "state", "path")
    return [
        *filter(None, (head, host.held_back, rate, unhealthy)),
        table(heads, list(map(_row, files)), left=(4, 5)),
        *(f"not followed: {trouble}" for trouble in host.troubles),
        *(f"may be lost: {text}" for text in host.unread),
        *(f"lost: {text}" for text in host.lost),
    ]


def _describe_process(host: HostReport) -> str:
    process = f"pid {host.pid}{f' of user {host.user}' if host.user else ''}"
    if host.superseded_by:
        return f"ending, {process}: pid {host.superseded_by} has taken over and ships"
    idle = "nothing to ship" if host.has_scanned and not host.behind_bytes else "no ack"
    last = f"last ack {host.last_ack}" if host.last_ack else f"{idle} since it started"
    return f"running, {process}, {last}"


def _row(file: FileStatus) -> tuple[str, ...]:
    waits = file.oldest_unshipped_seconds
    size, position, behind = (
        "gone" if file.size_bytes is None else format_size(file.size_bytes),
        str(file.position_bytes),
        "?" if file.behind_bytes is None else format_size(file.behind_bytes),
    )
    if file.position_entries is not None:
        size, position = "-", f"entry {file.position_entries}"
        behind = "?"
        if file.behind_entries is not None:
            behind = format_count(file.behind_entries, "entry")
    return (
        *(size, position, behind),
        "-" if waits is None else format_duration(timedelta(seconds=round(waits))),
        file.state,
        file.path,
    )


async def check(settings: ShipperSettings, host: str) -> list[CheckLine]:
    """Check files and broker; stores nothing."""
    inputs = find_inputs(settings.file)
    files = [*map(_check_input, inputs.values()), *check_files(settings.select_files(inputs))]
    if settings.journal:
        from shipper.sources.journal.checks import check_journal  # which others do not need

        bad, doubts = check_journal(settings.journal_options)
        files += [CheckLine(Level.BAD, text) for text in bad]
        files += [CheckLine(Level.DOUBTFUL, text) for text in doubts]
        files += [] if bad else [CheckLine(Level.FINE, f"{settings.journal_options.path}: read")]
    if warning := find_shared_name(host):
        files.insert(0, CheckLine(Level.LEFT_OUT, warning))
    if not any(one.level is Level.FINE for one in files):
        given = {"--file": settings.file, "--journal-directory": settings.journal}
        options = " and ".join(option for option, value in given.items() if value)
        files.append(CheckLine(Level.BAD, f"nothing would be shipped; check {options}"))
    try:
        broker = await _check_broker(settings, host)
    except (OperatorError, ValueError) as error:
        broker = [CheckLine(Level.BAD, str(error))]
    return [*files, *broker]


def _check_input(path: str) -> CheckLine:
    if path == STANDARD_INPUT or os.access(path, os.R_OK):
        return CheckLine(Level.FINE, f"{path}: read while the agent runs, through its spool")
    return CheckLine(Level.BAD, f"{path}: cannot be read; check its permissions")


def check_files(selection: Selection) -> Iterator[CheckLine]:
    """Yield for each selected file whether it would be followed, and why not."""
    found = scan(selection, {})
    paths = {entry.path for entry in found.entries}
    for entry in scan(replace(selection, excluded=()), {}).entries:
        if not entry.wanted:
            continue
        level, text = Level.FINE, format_count(entry.size, "byte")
        if entry.path not in paths:
            level, text = Level.LEFT_OUT, "left out by --exclude"
        elif not os.access(entry.path, os.R_OK):
            level, text = Level.BAD, "cannot be read; check its permissions"
        elif selection.is_too_old(entry.modified, time.time_ns()):
            level, text = Level.LEFT_OUT, "older than --ignore-older, unless it was followed before"
        yield CheckLine(level, f"{entry.path}: {text}")
    for trouble in found.troubles:
        level = Level.LEFT_OUT if trouble.kind is NoticeKind.REFUSED else Level.BAD
        yield CheckLine(level, f"{trouble.path}: {trouble.text}")


async def _check_broker(settings: ShipperSettings, host: str) -> list[CheckLine]:
    async with _connected(settings, host) as connection:
        layout = await require_layout(connection)
        subject = Subject.for_host(host, layout.partitions)
        among = format_count(layout.partitions, "partition")
        stream = f"stream {layout.stream_of(subject.partition)}, {subject} of {among}"
        may = await _may_publish(connection, subject)
        unread = await _find_unread(settings, connection, host)
        right = f"this user may {'' if may else 'not '}publish to {subject}"
        return [
            CheckLine(Level.FINE, f"broker at {connection.servers}: {stream}"),
            CheckLine(Level.FINE if may else Level.BAD, right),
            *(CheckLine(Level.DOUBTFUL, text) for text in unread),
        ]


async def _find_unread(settings: ShipperSettings, connection: Connection, host: str) -> list[str]:
    """Return which known files the running agent did not find, or one started now would not."""
    agents, _ = await ask(host)
    if agents:
        return [text for agent in agents for text in (*agent.unread, *agent.lost)]
    positions, _ = await _read_positions(connection, host)
    inputs, new_id = find_inputs(settings.file), map(str, itertools.count()).__next__
    known = [one for one in positions.files.values() if one.path.startswith("/")]
    selection = settings.select_files(inputs)
    follower = Follower(selection, known, new_id=new_id, clock=Clock(), listen=False)
    notices = await follower.scan()
    await follower.close()
    return [f"{one.path}: {one.text}" for one in notices if one.kind is NoticeKind.UNREAD]


async def _may_publish(connection: Connection, subject: Subject) -> bool:
    """Return whether this user may publish there, by a message that the stream refuses."""
    try:
        await connection.ask(str(subject), b"", {EXPECTED_SEQUENCE: str(IMPOSSIBLE_SEQUENCE)})
    except Denied:
        return False
    except Rejected as error:
        if not error.is_conflict:
            raise
    return True
