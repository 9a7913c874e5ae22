"""`logshipper check`: whether the agent would reach its broker, and which files it would follow. Changes nothing."""

import asyncio
import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from broker.app.address import Address
from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.client.config import require_layout
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.rights import may_publish
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.publish.messages import HostMessages
from shipper.settings import ShipperSettings
from shipper.spool import PATH
from shipper.status.live import ask
from shipper.status.show import connected
from shipper.tail.notices import NoticeKind
from shipper.tail.open_files import most_open_files
from shipper.tail.paths import Selection
from shipper.tail.scan import FileEntry, Scan, scan

__all__ = ["Finding", "Level", "check", "check_files", "check_limits"]

_ENOUGH_FILES = 100
"""Open files with which any number of files can be followed well."""
_INOTIFY_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


class Level(Enum):
    """What a finding means for the agent; the values are what a line begins with."""

    FINE = "ok "
    LEFT_OUT = "-- "
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    level: Level
    text: str

    def __str__(self) -> str:
        """Return the line; the text may hold paths of any characters."""
        return f"{self.level.value} {printable(self.text)}"


def _finding(text: str, problem: str = "") -> Finding:
    """Return that all is fine or, with a problem, that it is bad."""
    return Finding(Level.BAD, f"{text}{problem}") if problem else Finding(Level.FINE, text)


def check(settings: ShipperSettings, host: str) -> Iterator[Finding]:
    """Check files, limits, address and broker; asks running agents and the broker, and publishes nothing."""
    if settings.file != (PATH,):
        shown = scan(settings.selection, ())
        yield from check_files(settings.selection, shown, time.time_ns())
        yield from check_limits(len(shown.folders), sum(entry.wanted for entry in shown.entries))
    running = list(_check_running(host))
    yield from running
    if settings.listen is not None:
        yield _check_address(settings.listen, in_use=bool(running))
    yield from asyncio.run(_check_broker(settings, host))


def check_files(selection: Selection, shown: Scan, now: int) -> Iterator[Finding]:
    """Say of each file of a scan whether it would be followed, and why not; `now` is nanoseconds since the epoch."""
    paths = {entry.path for entry in shown.entries}
    for entry in shown.entries:
        if entry.wanted:
            yield _check_file(entry, selection, now)
    for entry in scan(replace(selection, excluded=()), ()).entries:
        if entry.wanted and entry.path not in paths:
            yield Finding(Level.LEFT_OUT, f"{entry.path}: left out by --exclude")
    for trouble in shown.troubles:
        level = Level.LEFT_OUT if trouble.kind is NoticeKind.REFUSED else Level.BAD
        yield Finding(level, f"{trouble.path}: {trouble.text}")


def _check_file(entry: FileEntry, selection: Selection, now: int) -> Finding:
    if not os.access(entry.path, os.R_OK):
        return Finding(Level.BAD, f"{entry.path}: cannot be read; check its permissions")
    if selection.is_too_old(entry.modified, now):
        text = "not written for longer than --ignore-older, unless it was followed before"
        return Finding(Level.LEFT_OUT, f"{entry.path}: {text}")
    return Finding(Level.FINE, f"{entry.path}: {entry.size} bytes")


def check_limits(directories: int, files: int) -> Iterator[Finding]:
    """Say whether so many files may be open and so many directories be watched; too low limits cost CPU, or deleted files."""
    most, soft = most_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    text = f"{files} files, at most {most} of them open at a time; {soft} descriptors allowed"
    # idle files are closed and opened again; a file that is deleted or renamed while it is closed may not be found again
    enough = most >= min(files, _ENOUGH_FILES)
    yield _finding(text, "" if enough else "; raise LimitNOFILE or ulimit -n")
    try:
        watches = int(_INOTIFY_WATCHES.read_text())
    except (OSError, ValueError):
        return
    text = f"{watches} inotify watches allowed, {directories} folders to watch"
    yield _finding(text, "" if watches >= directories else "; raise fs.inotify.max_user_watches")


def _check_running(host: str) -> Iterator[Finding]:
    answers = ask(host)
    for sentence in answers.broken:
        yield Finding(Level.BAD, sentence)
    for sentence in answers.not_asked:
        yield Finding(Level.FINE, sentence)
    for agent in answers.reports:
        text = f"an agent of {host} runs here, pid {agent.pid} of user {agent.user}"
        yield Finding(Level.FINE, text)


def _check_address(address: Address, *, in_use: bool) -> Finding:
    """Say whether `--listen` could listen; with `in_use` an agent of ours may be doing so."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        socket.create_server((address.host, address.port), family=family).close()
    except OSError as error:
        text = f"address {address}: {error.strerror}"
        if in_use:
            return Finding(Level.FINE, f"{text}, perhaps by the agent that runs")
        return Finding(Level.BAD, f"{text}; check --listen")
    return Finding(Level.FINE, f"address {address}: free")


async def _check_broker(settings: ShipperSettings, host: str) -> list[Finding]:
    try:
        async with connected(settings, host) as connection:
            return await _check_subject(connection, host)
    except (OperatorError, ValueError) as error:
        return [Finding(Level.BAD, str(error))]


async def _check_subject(connection: Connection, host: str) -> list[Finding]:
    layout = await require_layout(connection)
    subject = Subject.for_host(host, layout.partitions)
    newest = await HostMessages(connection, host, layout.streams).newest(subject)
    stream = layout.stream_of(subject.partition)
    last = f"last message {newest.sequence}" if newest else "nothing there yet"
    place = f"stream {stream}, {subject} of {layout.partitions} partitions, {last}"
    reached = Finding(Level.FINE, f"broker at {connection.servers}: {place}")
    return [reached, *await _check_rights(connection, stream, subject)]


async def _check_rights(connection: Connection, stream: str, subject: Subject) -> list[Finding]:
    consumer = f"{registry_consumer(subject.host)}.{host_filter(subject.host)}"
    creation = await connection.api_subject(f"CONSUMER.CREATE.{stream}.{consumer}")
    try:
        answer = json.loads((await connection.request("$SYS.REQ.USER.INFO", patience=2)).data)
        permissions = answer["data"].get("permissions")
    except (Rejected, ConnectionLost, ValueError, KeyError):
        text = "the server does not tell what this user may do; that shows at the start"
        return [Finding(Level.FINE, text)]
    denied = [
        Finding(Level.BAD, f"this user may not publish to {needed}; see its permissions")
        for needed in (str(subject), creation)
        if not may_publish(permissions, needed)
    ]
    return denied or [Finding(Level.FINE, f"this user may publish to {subject}")]
