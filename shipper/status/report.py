"""The status document of a shipper, from which table, JSON, metrics, health and the line for systemd are made.

Units are in the names, times are RFC 3339 in UTC, None is a value that cannot be known.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND, format_time
from nats_logship.app.units import format_size
from shipper.publish.rounds import Round
from shipper.sources.files.file import FollowedFile
from shipper.sources.notices import Notice, NoticeKind

if TYPE_CHECKING:
    from shipper.loop import ShippingLoop
    from shipper.sources.stdin import Spool

_LONG = 60.0  # seconds


class FileStatus(BaseModel):
    """A file; `position_bytes` is the next byte that is not acknowledged, `state` also says why it cannot be read, if so.

    `oldest_unshipped_seconds` is how long the agent has known of the oldest line that is not acknowledged.
    """

    path: str
    state: str
    size_bytes: int | None
    position_bytes: int
    behind_bytes: int | None
    oldest_unshipped_seconds: float | None = None


class HostReport(BaseModel):
    """A host; `running` tells the report of an agent from one of the positions in the broker, which were saved at `saved`.

    `broker` is what tells the broker from others, `troubles` say which paths are asked for and not followed, and why.
    `paused` says until when an operator has paused the host, by whom and why; `unhealthy` why the agent does not ship, or
    will not for long. `unread` says which files the last start could not account for: something may
    be lost.
    """

    host: str
    running: bool
    files: tuple[FileStatus, ...]
    broker: str = ""
    saved: str | None = None
    pid: int | None = None
    last_ack: str | None = None
    waiting_for: str = ""
    paused: str = ""
    troubles: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unhealthy: str = ""

    @property
    def behind_bytes(self) -> int:
        """Bytes behind over all files of which it is known."""
        return sum(file.behind_bytes or 0 for file in self.files)

    @property
    def summary(self) -> str:
        """How many files there are, and how far behind they are."""
        count = format_count(len(self.files), "file")
        return f"{count}, {format_size(self.behind_bytes)} unshipped"


class AgentMeter:
    """The counters of one run; `observe` is told the seconds from reading a round's oldest block to its acknowledgement."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0; `clock` is nanoseconds since the epoch."""
        self._clock = clock
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.lost: Counter[str] = Counter()
        self.unread: dict[str, str] = {}  # what is to be said of files that the start did not find
        self.last_ack: int | None = None
        self.observe: Callable[[float], object] = float

    def acknowledged(self, round_: Round) -> None:
        """Count a round that is stored."""
        self.last_ack = self._clock()
        self.observe(max(0, self.last_ack - round_.origin.read_at) / SECOND)
        self.rounds += 1
        self.sent += len(round_.payload)
        for section in round_.origin.sections:
            self.lines += section.lines
            self.bytes += section.span.end - section.span.start

    def noticed(self, notices: Iterable[Notice]) -> None:
        """Count the bytes that were lost, by cause, and keep what the start did not find."""
        for notice in notices:
            if notice.kind is NoticeKind.UNREAD:
                self.unread[notice.path] = notice.text
            if notice.lost:
                cause = "deleted" if notice.kind is NoticeKind.GONE else notice.kind.value
                self.lost[cause] += notice.lost


class AgentView:
    """Makes the report of one agent; `spool` is None where standard input is not read."""

    def __init__(self, host: str, shipping: "ShippingLoop", clock: Callable[[], int]) -> None:
        self.meter = shipping.meter
        self.waiting = shipping.sessions.waiting
        self.shipping = shipping
        self.spool: Spool | None = None
        self._host = host
        self._sessions = shipping.sessions
        self._clock = clock

    @property
    def paused(self) -> str:
        """Until when an operator has paused the host, by whom and why; empty where nobody has."""
        return str(self._sessions.config.pause or "")

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker or the end of a pause."""
        return self.shipping.has_scanned or bool(self._sessions.obstacle)

    def is_moving(self, most: float) -> bool:
        """Whether no scan and no read takes longer than `most` seconds."""
        return self._reading_seconds < most

    def status(self) -> str:
        """Return one line on the status."""
        report = self.report()
        summary = report.summary if report.files or not report.unhealthy else ""
        return ", ".join(filter(None, (summary, report.paused, report.unhealthy)))

    def health(self) -> str:
        """Return why the agent is unhealthy, or nothing, without the work of looking at every file."""
        trouble = self.spool.trouble if self.spool else ""
        if self._reading_seconds > _LONG:
            return "a file or a directory cannot be read; its file system may be gone"
        if trouble or self.paused:
            return trouble
        if self._waiting_for:
            return f"waiting for the broker: {self._waiting_for}"
        if not self.shipping.has_scanned:
            return "starting: the positions are being read back"
        age = self._age(min(self.shipping.unacknowledged().values(), default=None)) or 0.0
        if age > _LONG:
            return f"nothing was acknowledged for {age:.0f} s although there is something to ship"
        return ""

    def report(self) -> HostReport:
        """Return the status as it is now."""
        read, last_ack = self.shipping.unacknowledged(), self.meter.last_ack
        return HostReport(
            host=self._host,
            running=True,
            files=self._files(read),
            broker=self._sessions.config.partitions.time,
            pid=os.getpid(),
            last_ack=format_time(last_ack, "seconds") if last_ack else None,
            waiting_for=self._waiting_for,
            paused=self.paused,
            troubles=tuple(f"{one.path}: {one.text}" for one in self.shipping.follower.troubles),
            unread=tuple(f"{path}: {text}" for path, text in self.meter.unread.items()),
            unhealthy=self.health(),
        )

    @property
    def _waiting_for(self) -> str:
        return self._sessions.connection.away or self.waiting.reason

    @property
    def _reading_seconds(self) -> float:
        since = self.shipping.follower.busy_since
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    def _files(self, read: Mapping[str, int]) -> tuple[FileStatus, ...]:
        states = self.shipping.follower.files()
        kept = self.spool.behind if self.spool else 0
        if kept and not states:  # there was no session yet
            file = FileStatus(
                path="-", state="spooled", size_bytes=kept, position_bytes=0, behind_bytes=kept
            )
            return (file,)
        return tuple(self._file(state, read.get(state.file)) for state in states)

    def _file(self, state: FollowedFile, read: int | None) -> FileStatus:
        position = self.shipping.position(state.file)
        size = position + self.spool.behind if self.spool else state.end
        behind = max(0, size - position)
        known = [since for since in (state.since, read) if since is not None]
        is_held = behind and state.held == behind
        return FileStatus(
            path=state.path,
            state=state.note or ("unfinished line" if is_held else state.stage),
            size_bytes=size,
            position_bytes=position,
            behind_bytes=behind,
            oldest_unshipped_seconds=self._age(min(known, default=None)),
        )

    def _age(self, moment: int | None) -> float | None:
        return None if moment is None else round(max(0, self._clock() - moment) / SECOND, 3)
