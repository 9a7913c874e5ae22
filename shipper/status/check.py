"""`logshipper check`: whether the agent would reach its broker, and which files it would follow. Changes nothing."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from broker.app.exits import OperatorError
from broker.app.untrusted import printable
from broker.client.config import require_layout
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.client.rights import may_publish
from broker.wire.subjects import Subject, host_filter, registry_consumer
from shipper.settings import ShipperSettings
from shipper.spool import PATH
from shipper.status.show import connected
from shipper.tail.notices import NoticeKind
from shipper.tail.paths import Selection
from shipper.tail.scan import FileEntry, scan

__all__ = ["AgentCheck", "CheckLevel", "check", "check_files"]


class CheckLevel(Enum):
    """What a finding means for the agent; the values are what a line begins with."""

    FINE = "ok "
    LEFT_OUT = "-- "
    BAD = "BAD"


@dataclass(frozen=True, slots=True)
class AgentCheck:
    """One line of the report."""

    level: CheckLevel
    text: str

    def __str__(self) -> str:
        """Return the line; the text may hold paths of any characters."""
        return f"{self.level.value} {printable(self.text)}"


async def check(settings: ShipperSettings, host: str) -> list[AgentCheck]:
    """Check files and broker; publishes nothing."""
    files = [] if settings.file == (PATH,) else check_files(settings.selection, time.time_ns())
    return [*files, *await _check_broker(settings, host)]


def check_files(selection: Selection, now: int) -> Iterator[AgentCheck]:
    """Say of each file that is selected whether it would be followed, and why not; `now` is nanoseconds since the epoch."""
    shown = scan(selection, ())
    paths = {entry.path for entry in shown.entries}
    for entry in shown.entries:
        if entry.wanted:
            yield _check_file(entry, selection, now)
    for entry in scan(replace(selection, excluded=()), ()).entries:
        if entry.wanted and entry.path not in paths:
            yield AgentCheck(CheckLevel.LEFT_OUT, f"{entry.path}: left out by --exclude")
    for trouble in shown.troubles:
        level = CheckLevel.LEFT_OUT if trouble.kind is NoticeKind.REFUSED else CheckLevel.BAD
        yield AgentCheck(level, f"{trouble.path}: {trouble.text}")


def _check_file(entry: FileEntry, selection: Selection, now: int) -> AgentCheck:
    if not os.access(entry.path, os.R_OK):
        return AgentCheck(CheckLevel.BAD, f"{entry.path}: cannot be read; check its permissions")
    if selection.is_too_old(entry.modified, now):
        text = "not written for longer than --ignore-older, unless it was followed before"
        return AgentCheck(CheckLevel.LEFT_OUT, f"{entry.path}: {text}")
    return AgentCheck(CheckLevel.FINE, f"{entry.path}: {entry.size} bytes")


async def _check_broker(settings: ShipperSettings, host: str) -> list[AgentCheck]:
    try:
        async with connected(settings, host) as connection:
            layout = await require_layout(connection)
            subject = Subject.for_host(host, layout.partitions)
            stream = layout.stream_of(subject.partition)
            place = f"stream {stream}, {subject} of {layout.partitions} partitions"
            reached = AgentCheck(CheckLevel.FINE, f"broker at {connection.servers}: {place}")
            return [reached, *await _check_rights(connection, stream, subject)]
    except (OperatorError, ValueError) as error:
        return [AgentCheck(CheckLevel.BAD, str(error))]


async def _check_rights(connection: Connection, stream: str, subject: Subject) -> list[AgentCheck]:
    consumer = f"{registry_consumer(subject.host)}.{host_filter(subject.host)}"
    creation = await connection.api_subject(f"CONSUMER.CREATE.{stream}.{consumer}")
    try:
        answer = json.loads((await connection.request("$SYS.REQ.USER.INFO", patience=2)).data)
        permissions = answer["data"].get("permissions")
    except (Rejected, ConnectionLost, ValueError, KeyError):
        text = "the server does not tell what this user may do; that shows at the start"
        return [AgentCheck(CheckLevel.FINE, text)]
    denied = [
        AgentCheck(CheckLevel.BAD, f"this user may not publish to {needed}; see its permissions")
        for needed in (str(subject), creation)
        if not may_publish(permissions, needed)
    ]
    return denied or [AgentCheck(CheckLevel.FINE, f"this user may publish to {subject}")]
