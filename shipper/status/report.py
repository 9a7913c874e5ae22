"""The status document of a shipper, from which table, JSON, metrics, health and log are made.

Units are in the names, times are RFC 3339 in UTC, None is a value that cannot be known.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, computed_field

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND, format_time
from nats_logship.app.units import format_size
from nats_logship.wire.positions import Positions
from shipper.publish.rounds import Round
from shipper.sources.files.file import FollowedFile
from shipper.sources.notices import Notice, NoticeKind

_LONG = 60.0  # seconds


class FileStatus(BaseModel):
    """A file; `state` says what happens to it, or why it cannot be read.

    `position_bytes` is the first byte that is not acknowledged. `oldest_unshipped_seconds` is how
    long the agent has known of the oldest line that is not acknowledged.
    """

    path: str
    state: str
    size_bytes: int | None
    position_bytes: int
    oldest_unshipped_seconds: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind_bytes(self) -> int | None:
        """Bytes that are not acknowledged."""
        return None if self.size_bytes is None else max(0, self.size_bytes - self.position_bytes)


class HostReport(BaseModel):
    """The status of a host: of its running agent, or of the positions `saved` in the broker.

    `broker` differs between brokers. `troubles` are the paths that are not followed, with the
    reason. `paused` says until when, by whom and why an operator paused the host. `unhealthy` is
    why the agent does not ship, or soon will not. `unread` are files that the last start did not
    find: some of their lines may be lost.
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
        """Bytes that are not acknowledged, of all files of which that is known."""
        return sum(file.behind_bytes or 0 for file in self.files)

    @property
    def summary(self) -> str:
        """How many files there are, and how many bytes are not acknowledged."""
        count = format_count(len(self.files), "file")
        return f"{count}, {format_size(self.behind_bytes)} unshipped"


class AgentMeter:
    """What was acknowledged and what was lost since the start.

    `lost` are bytes by cause, `unread` texts on files that the start did not find, by path.
    `observe` is called with the seconds from reading a round's oldest block to its acknowledgement.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0; `clock` is nanoseconds since the epoch."""
        self._clock = clock
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.lost: Counter[str] = Counter()
        self.unread: dict[str, str] = {}
        self.last_ack: int | None = None
        self.observe: Callable[[float], object] = float

    def count_round(self, round_: Round) -> None:
        """Count a round that is acknowledged now."""
        self.last_ack = self._clock()
        self.observe(max(0, self.last_ack - round_.origin.read_at) / SECOND)
        self.rounds += 1
        self.sent += len(round_.payload)
        for section in round_.origin.sections:
            self.lines += section.lines
            self.bytes += section.span.end - section.span.start

    def count_notices(self, notices: Iterable[Notice]) -> None:
        """Count lost bytes, and keep what is known of files that the start did not find."""
        for notice in notices:
            if notice.kind is NoticeKind.UNREAD:
                self.unread[notice.path] = notice.text
            if notice.lost:
                cause = "deleted" if notice.kind is NoticeKind.GONE else notice.kind.value
                self.lost[cause] += notice.lost


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """A running agent at one moment; `now` and the values of `read_at` are nanoseconds.

    `read_at` is when the oldest unacknowledged lines of a file were read, by file id.
    `reading_seconds` is how long the present scan or read takes. `spooled_bytes` is None if the
    agent does not read standard input.
    """

    now: int
    files: Sequence[FollowedFile] = ()
    positions: Positions = field(default_factory=Positions)
    read_at: Mapping[str, int]
    troubles: Sequence[Notice] = ()
    open_files: int = 0
    has_scanned: bool = True
    reading_seconds: float = 0.0
    broker: str = ""
    waiting_for: str = ""
    paused: str = ""
    retries: Mapping[str, int]
    spooled_bytes: int | None = None
    spool_trouble: str = ""


class AgentView:
    """Makes the reports of one running agent, whose present state `observe` returns."""

    def __init__(self, host: str, meter: AgentMeter, observe: Callable[[], AgentState]) -> None:
        self.meter = meter
        self.observe = observe
        self._host = host

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker or the end of a pause."""
        state = self.observe()
        return state.has_scanned or bool(state.paused or state.waiting_for)

    def is_moving(self, most: float) -> bool:
        """Whether no scan and no read takes longer than `most` seconds."""
        return self.observe().reading_seconds < most

    def status(self) -> str:
        """Return the status in one line."""
        report = self.report()
        summary = report.summary if report.files or not report.unhealthy else ""
        return ", ".join(filter(None, (summary, report.paused, report.unhealthy)))

    def health(self) -> str:
        """Return why the agent is unhealthy, or an empty text."""
        return health_of(self.observe())

    def report(self) -> HostReport:
        """Return the present status."""
        state, meter = self.observe(), self.meter
        return HostReport(
            host=self._host,
            running=True,
            files=_files_of(state),
            broker=state.broker,
            pid=os.getpid(),
            last_ack=format_time(meter.last_ack, "seconds") if meter.last_ack else None,
            waiting_for=state.waiting_for,
            paused=state.paused,
            troubles=tuple(f"{one.path}: {one.text}" for one in state.troubles),
            unread=tuple(f"{path}: {text}" for path, text in meter.unread.items()),
            unhealthy=health_of(state),
        )


def health_of(state: AgentState) -> str:
    """Return why an agent is unhealthy, or an empty text."""
    if state.reading_seconds > _LONG:
        return "a file or a directory cannot be read; its file system may be gone"
    if state.spool_trouble or state.paused:
        return state.spool_trouble
    if state.waiting_for:
        return f"waiting for the broker: {state.waiting_for}"
    if not state.has_scanned:
        return "starting: the positions are being read back"
    age = _age(state, min(state.read_at.values(), default=None)) or 0.0
    if age > _LONG:
        return f"nothing was acknowledged for {age:.0f} s although there is something to ship"
    return ""


def _files_of(state: AgentState) -> tuple[FileStatus, ...]:
    spooled = state.spooled_bytes
    if spooled and not state.files:  # there was no session yet
        return (FileStatus(path="-", state="spooled", size_bytes=spooled, position_bytes=0),)
    return tuple(_status_of(file, state) for file in state.files)


def _status_of(file: FollowedFile, state: AgentState) -> FileStatus:
    cursor = state.positions.files.get(file.file)
    position = cursor.offset if cursor else 0
    size = file.end if state.spooled_bytes is None else position + state.spooled_bytes
    is_held = file.held and file.held == size - position
    known = [at for at in (file.since, state.read_at.get(file.file)) if at is not None]
    return FileStatus(
        path=file.path,
        state=file.note or ("unfinished line" if is_held else file.stage),
        size_bytes=size,
        position_bytes=position,
        oldest_unshipped_seconds=_age(state, min(known, default=None)),
    )


def _age(state: AgentState, moment: int | None) -> float | None:
    return None if moment is None else round(max(0, state.now - moment) / SECOND, 3)
