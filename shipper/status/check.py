"""`logshipper check`: whether the agent would reach its broker, and which files it would follow. Changes nothing."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from broker.app.exits import OperatorError
from broker.client.config import require_layout
from broker.wire.subjects import Subject, may_publish
from shipper.settings import ShipperSettings
from shipper.spool import PATH
from shipper.status.show import connected
from shipper.tail.notices import NoticeKind
from shipper.tail.paths import Selection
from shipper.tail.scan import scan

__all__ = ["AgentCheck", "CheckLevel", "check", "check_files"]


class CheckLevel(StrEnum):
    """What a finding means for the agent; the values are what a line begins with."""

    FINE = "ok "
    LEFT_OUT = "-- "
    BAD = "BAD"


class AgentCheck(NamedTuple):
    """One line of the report; the text may hold paths of any characters."""

    level: CheckLevel
    text: str


async def check(settings: ShipperSettings, host: str) -> list[AgentCheck]:
    """Check files and broker; publishes nothing."""
    files = [] if settings.file == (PATH,) else check_files(settings.selection, time.time_ns())
    try:
        broker = await _check_broker(settings, host)
    except (OperatorError, ValueError) as error:
        broker = [AgentCheck(CheckLevel.BAD, str(error))]
    return [*files, *broker]


def check_files(selection: Selection, now: int) -> Iterator[AgentCheck]:
    """Say of each file that is selected whether it would be followed, and why not; `now` is nanoseconds since the epoch."""
    shown = scan(selection, ())
    paths = {entry.path for entry in shown.entries}
    for entry in scan(replace(selection, excluded=()), ()).entries:
        if not entry.wanted:
            continue
        level, text = CheckLevel.FINE, f"{entry.size} bytes"
        if entry.path not in paths:
            level, text = CheckLevel.LEFT_OUT, "left out by --exclude"
        elif not os.access(entry.path, os.R_OK):
            level, text = CheckLevel.BAD, "cannot be read; check its permissions"
        elif selection.is_too_old(entry.modified, now):
            level, text = (
                CheckLevel.LEFT_OUT,
                "older than --ignore-older, unless it was followed before",
            )
        yield AgentCheck(level, f"{entry.path}: {text}")
    for trouble in shown.troubles:
        level = CheckLevel.LEFT_OUT if trouble.kind is NoticeKind.REFUSED else CheckLevel.BAD
        yield AgentCheck(level, f"{trouble.path}: {trouble.text}")


async def _check_broker(settings: ShipperSettings, host: str) -> list[AgentCheck]:
    async with connected(settings, host) as connection:
        layout = await require_layout(connection)
        subject = Subject.for_host(host, layout.partitions)
        place = f"stream {layout.stream_of(subject.partition)}, {subject} of {layout.partitions} partitions"
        reached = AgentCheck(CheckLevel.FINE, f"broker at {connection.servers}: {place}")
        if may_publish(await connection.permissions(), str(subject)):
            return [reached, AgentCheck(CheckLevel.FINE, f"this user may publish to {subject}")]
        text = f"this user may not publish to {subject}; see its permissions"
        return [reached, AgentCheck(CheckLevel.BAD, text)]
