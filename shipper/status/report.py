"""The status document of a shipper, from which table, JSON, metrics, health and log are made.

Units are in the names, times are RFC 3339 in UTC, None is a value that cannot be known.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import BaseModel, computed_field

from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND
from nats_logship.app.units import format_size
from nats_logship.wire.message import Unit
from shipper.publish.rounds import Round
from shipper.sources.notices import Notice, NoticeKind
from shipper.sources.source import SourceState

_LONG = 60.0  # seconds
_MOST_UNREAD = 100  # sentences on files that were not read


class FileStatus(BaseModel):
    """A file; `state` says what happens to it, or why it cannot be read.

    `position_bytes` is the first byte that is not acknowledged. A journal has entries instead.
    `oldest_unshipped_seconds` is how long the agent has known of the oldest line that is not
    acknowledged.
    """

    path: str
    state: str
    size_bytes: int | None = None
    position_bytes: int | None = None
    end_entries: int | None = None
    position_entries: int | None = None
    oldest_unshipped_seconds: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind_bytes(self) -> int | None:
        """Bytes that are not acknowledged."""
        return _difference(self.size_bytes, self.position_bytes)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind_entries(self) -> int | None:
        """Entries of a journal that are not acknowledged."""
        return _difference(self.end_entries, self.position_entries)


def _difference(end: int | None, position: int | None) -> int | None:
    return None if end is None or position is None else max(0, end - position)


class HostReport(BaseModel):
    """The status of a host: of its running agent, or of the positions `saved` in the broker.

    `broker` differs between brokers. `user` is whose process it is, empty for the reader's own.
    `agent` is the id of a run that has claimed the host; `superseded_by` is the process of a newer
    one, which ships instead. `paused` says until when, by whom and why an operator paused
    the host. `interval_seconds` is the shortest interval between two rounds that the broker asks
    for, 0 if for none. `troubles` are the paths that are not followed, with the reason. `unread`
    are files that the last start did not find: some of their lines may be lost. `lost` are lost
    entries of journals. `reading_seconds` is how long the present scan or read takes,
    `waiting_seconds` how long ago the oldest line that is not acknowledged was read, `obstacle` why
    a source cannot be read at all, `retries` how often rounds were tried again, by reason.
    `max_rate_bytes` is `--max-rate` per second, 0 for no limit, `rate_held_seconds` for how long
    it has held each round back.
    """

    host: str
    running: bool
    files: tuple[FileStatus, ...]
    broker: str = ""
    saved: str | None = None
    pid: int | None = None
    user: str = ""
    agent: str = ""
    superseded_by: int | None = None
    last_ack: str | None = None
    waiting_for: str = ""
    paused: str = ""
    interval_seconds: float = 0.0
    troubles: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    has_scanned: bool = True
    open_files: int = 0
    reading_seconds: float | None = None
    waiting_seconds: float | None = None
    obstacle: str = ""
    retries: Mapping[str, int] = {}
    max_rate_bytes: int = 0
    rate_held_seconds: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unhealthy(self) -> str:
        """Why the agent does not ship, or soon will not; empty if it is healthy."""
        if (self.reading_seconds or 0.0) > _LONG:
            return "a file or a directory cannot be read; its file system may be gone"
        if self.obstacle or self.paused:
            return self.obstacle
        if self.waiting_for:
            return f"waiting for the broker: {self.waiting_for}"
        if not self.has_scanned:
            return "starting: the positions are being read back"
        if self.rate_held_seconds is None and (age := self.waiting_seconds or 0.0) > _LONG:
            return f"nothing was acknowledged for {age:.0f} s although there is something to ship"
        return ""

    @property
    def held_back(self) -> str:
        """What holds the lines of the host back; empty if it ships as it likes."""
        if self.paused:
            return self.paused
        asked = f"at least {self.interval_seconds:g} s between rounds, as the broker asks"
        rate = self.rate if self.rate_held_seconds is not None else ""
        return "; ".join(filter(None, (asked if self.interval_seconds else "", rate)))

    @property
    def rate(self) -> str:
        """How many bytes of lines are sent per second at most; empty if there is no limit."""
        if not self.max_rate_bytes:
            return ""
        text = f"at most {format_size(self.max_rate_bytes)}/s (--max-rate)"
        if self.rate_held_seconds is None:
            return text
        return f"{text}, which has held lines back for {self.rate_held_seconds:.0f} s"

    @property
    def behind_bytes(self) -> int:
        """Bytes that are not acknowledged, of all files of which that is known."""
        return sum(file.behind_bytes or 0 for file in self.files)

    @property
    def behind_entries(self) -> int:
        """Entries of journals that are not acknowledged."""
        return sum(file.behind_entries or 0 for file in self.files)

    @property
    def behind(self) -> str:
        """How much is not acknowledged, as text."""
        size = format_size(self.behind_bytes)
        has_journal = any(file.position_entries is not None for file in self.files)
        return f"{size} and {format_count(self.behind_entries, 'entry')}" if has_journal else size

    @property
    def summary(self) -> str:
        """How many files there are, and how much is not acknowledged."""
        return f"{format_count(len(self.files), 'file')}, {self.behind} unshipped"


class AgentMeter:
    """What was acknowledged and what was lost since the start.

    `lost` are bytes by cause, `vacuumed` the newest sentences on lost entries of journals.
    `observe` is called with the seconds from reading a round's oldest block to its acknowledgement.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        """Begin at 0; `clock` is nanoseconds since the epoch."""
        self._clock = clock
        self.lines = self.bytes = self.sent = self.rounds = 0
        self.lost: Counter[str] = Counter()
        self.lost_entries = 0
        self.vacuumed: deque[str] = deque(maxlen=_MOST_UNREAD)
        self._unread: dict[tuple[str, str], str] = {}  # the newest last
        self._older = 0  # sentences that are not kept
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
            is_file = section.unit == "bytes"
            self.bytes += section.span.end - section.span.start if is_file else section.size

    @property
    def unread(self) -> list[str]:
        """The newest sentences on files that were not read, or of which the start found nothing."""
        older = f"{format_count(self._older, 'older report')} of files that were not read"
        return [*[f"{older}: see the log"][: self._older], *self._unread.values()]

    def count_notices(self, notices: Iterable[Notice]) -> None:
        """Count lost bytes, and keep what is known of files that the start did not find."""
        for notice in notices:
            if notice.kind is NoticeKind.UNREAD:
                key = notice.path, "" if notice.is_total else notice.text
                self._unread.pop(key, None)
                self._unread[key] = f"{notice.path}: {notice.text}"
                if len(self._unread) > _MOST_UNREAD:
                    del self._unread[next(iter(self._unread))]
                    self._older += 1
            if notice.kind is NoticeKind.VACUUMED:
                self.lost_entries += notice.lost
                self.vacuumed.append(f"{notice.path}: {notice.text}")
            elif notice.lost:
                cause = "deleted" if notice.kind is NoticeKind.GONE else notice.kind.value
                self.lost[cause] += notice.lost


def list_files(
    files: Sequence[SourceState],
    position: Callable[[str], int],
    read_at: Mapping[str, int],
    now: int,
) -> tuple[FileStatus, ...]:
    """Return the status of followed files; `position` is how far a file is acknowledged, by its id.

    `read_at` is when a file's oldest unacknowledged lines were read, by file id, in nanoseconds as
    `now`.
    """
    listed = []
    for file in files:
        at = position(file.file)
        is_held = file.unfinished and file.unfinished == file.end - at
        status = FileStatus(
            path=file.path,
            state=file.problem or ("unfinished line" if is_held else file.condition),
            **measure(file.end, at, file.unit),
            oldest_unshipped_seconds=seconds_since(
                (file.readable_since, read_at.get(file.file)), now
            ),
        )
        listed.append(status)
    return tuple(listed)


def measure(end: int | None, position: int, unit: Unit) -> dict[str, int | None]:
    """Return the fields of a `FileStatus` for an end and a position."""
    if unit == "bytes":
        return {"size_bytes": end, "position_bytes": position}
    return {"end_entries": end, "position_entries": position}


def seconds_since(moments: Iterable[int | None], now: int) -> float | None:
    """Return the seconds from the first of these moments, in nanoseconds; None without any."""
    first = min((one for one in moments if one is not None), default=None)
    return None if first is None else round(max(0, now - first) / SECOND, 3)
