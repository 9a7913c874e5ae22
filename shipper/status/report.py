"""The status document of a shipper: put together when somebody asks, from what the parts of the agent know.

Units are in the names, times are RFC 3339 in UTC, None is what cannot be known.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, get_origin

from broker.app.sizes import format_size
from broker.client.connection import Connection
from shipper.publish.waiting import Waiting
from shipper.session import Session
from shipper.shipping import Shipping
from shipper.spool import PATH, Spool
from shipper.status.meter import Meter
from shipper.tail.follower import Follower
from shipper.tail.tailer import FileState, Stage

__all__ = [
    "FileReport",
    "HostReport",
    "Trouble",
    "View",
    "Vitals",
    "ailment",
    "behind",
    "reason_for",
    "rfc3339",
]

_LARGEST_NUMBER = 2**63


@dataclass(frozen=True, slots=True)
class FileReport:
    """A file; `position_bytes` is the next byte that is not acknowledged, `reason` why it does not move, if it does not.

    `oldest_unshipped_seconds` is how long the agent has known of the oldest line that is not acknowledged.
    """

    path: str
    file: str
    state: str
    reason: str
    size_bytes: int | None
    position_bytes: int
    behind_bytes: int | None
    oldest_unshipped_seconds: float | None = None
    bytes_per_second: float | None = None
    lines_per_second: float | None = None
    last_read: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """A path that is asked for and not followed, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """A host; `running` tells a report of the agent itself from one of the positions that it saved.

    `passed_over` are the paths of files that are not followed since they were not written for long (--ignore-older).
    `pid` and `user` are whose process answered. `sequence` is the stream's, of the last acknowledged block; `lost_bytes` are counted since `up_since`, by cause.
    """

    host: str
    agent: str
    sequence: int
    running: bool
    files: tuple[FileReport, ...]
    saved: str | None = None
    pid: int | None = None
    user: str | None = None
    up_since: str | None = None
    last_ack: str | None = None
    waiting_for: str = ""
    lost_bytes: Mapping[str, int] = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()
    passed_over: tuple[str, ...] = ()

    @property
    def behind_bytes(self) -> int:
        """Bytes behind over all files of which it is known."""
        return sum(file.behind_bytes or 0 for file in self.files)

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        document = _plain(self)
        return {
            **document,
            "lost_bytes": dict(self.lost_bytes),
            "files": [_plain(file) for file in self.files],
            "troubles": [_plain(trouble) for trouble in self.troubles],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "HostReport":
        """Read what `document` gave, perhaps that of another version; raises ValueError when it is anything else."""
        try:
            files = tuple(FileReport(**_known(FileReport, file)) for file in document["files"])
            troubles = tuple(Trouble(**_known(Trouble, one)) for one in document["troubles"])
            passed = tuple(_of(document.get("passed_over", []), str))
            lost = dict(document.get("lost_bytes", {}))
            _of(lost.values(), int)
            known = {**_known(cls, document), "files": files, "troubles": troubles}
            return cls(**{**known, "passed_over": passed, "lost_bytes": lost})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no report of an agent: {error}") from None


def _plain(value: Any) -> dict[str, Any]:
    # asdict copies deeply, which takes ten times as long; there may be ten thousand files
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _known(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a document has of the fields of a kind; raises TypeError for a value of another type."""
    found = {one.name: document[one.name] for one in fields(kind) if one.name in document}
    for one in fields(kind):
        if one.name in found and get_origin(one.type) not in {tuple, Mapping}:
            _of([found[one.name]], one.type)
    return found


def _of(values: Iterable[Any], kind: Any) -> Iterable[Any]:
    for value in values:
        number = isinstance(value, int | float)
        # a number without a fraction may come as an integer, and NaN is within no limits
        if not isinstance(value, kind) and not (number and isinstance(0.0, kind)):
            raise TypeError(f"a {type(value).__name__} in the place of another type")
        if number and not -_LARGEST_NUMBER <= value <= _LARGEST_NUMBER:
            raise TypeError("a number that is too large")
    return values


def behind(state: FileState, position: int) -> int:
    """Return how many bytes of a file are there and not acknowledged."""
    return max(0, state.size - position)


def reason_for(state: FileState, position: int, waiting_for: str) -> str:
    """Return why a file does not move, empty when there is nothing to move or nothing in its way."""
    if state.note:
        return state.note
    if state.stage is Stage.DOUBTFUL:
        return "truncated or replaced, to be looked at"
    if not behind(state, position):
        return ""
    if state.held and state.held == behind(state, position):
        return "waits for the rest of its last line"
    return waiting_for


_LONG = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Vitals:
    """What was seen of an agent; `unacknowledged` is the age in seconds of what was read and is not acknowledged yet.

    `is_moving` says that no reading hangs, `is_following` that the start is over. `trouble` is why
    standard input cannot be written to disk.
    """

    is_moving: bool
    is_following: bool
    waiting_for: str
    unacknowledged: float | None
    trouble: str = ""


def ailment(seen: Vitals) -> str:
    """Return why the agent does not ship, or will not for long; empty when it is well."""
    if not seen.is_moving:
        return "a file or a folder does not let itself be read; its file system may be gone"
    if seen.trouble:
        return seen.trouble
    if seen.waiting_for:
        return f"waiting for the broker: {seen.waiting_for}"
    if not seen.is_following:
        return "starting: the positions are being read back"
    if seen.unacknowledged is not None and seen.unacknowledged > _LONG:
        return f"nothing was acknowledged for {seen.unacknowledged:.0f} s although there is something to ship"
    return ""


_HUNG = 60.0  # seconds
_SECOND = 1_000_000_000


class View:
    """One agent; `session`, `source` and `shipping` are None while it starts, `spool` where standard input is not read."""

    def __init__(
        self,
        host: str,
        connection: Connection,
        waiting: Waiting,
        meter: Meter,
        clock: Callable[[], int],
    ) -> None:
        """Look at what is there from the start on; `clock` is nanoseconds since the epoch."""
        self.meter = meter
        self.waiting = waiting
        self.session: Session | None = None
        self.source: Follower | None = None
        self.shipping: Shipping | None = None
        self.spool: Spool | None = None
        self._host = host
        self._connection = connection
        self._clock = clock

    def at_work(self, session: Session, source: Follower, shipping: Shipping) -> None:
        """Take note of what works from now on."""
        self.session, self.source, self.shipping = session, source, shipping

    def at_rest(self) -> None:
        """Take note that nothing works now, until the subject is claimed again."""
        self.session = self.source = self.shipping = None

    @property
    def is_following(self) -> bool:
        """Whether the subject is claimed, the positions are rebuilt and the first look is done."""
        return self.shipping is not None and self.shipping.has_scanned

    @property
    def waiting_for(self) -> str:
        """What the agent waits for, empty while all goes well."""
        return self._connection.away or self.waiting.reason

    @property
    def is_ready(self) -> bool:
        """Whether the start is over, or waits for the broker."""
        return self.is_following or bool(self.waiting_for)

    def news(self) -> object:
        """Return what compares equal as long as the status reads the same; None when that cannot be known."""
        # while nothing is shipped and nothing is waited for, nothing changes that is worth adding up all files
        return None if self.waiting_for or not self.is_following else self.meter.rounds

    def is_moving(self, most: float) -> bool:
        """Whether no look and no reading has been under way for more than `most` seconds."""
        since = None if self.shipping is None else self.shipping.reading_since
        return since is None or asyncio.get_running_loop().time() - since < most

    def vitals(self) -> Vitals:
        """Return what tells whether the agent is well."""
        read = min(self.meter.unacknowledged().values(), default=None)
        return Vitals(
            is_moving=self.is_moving(_HUNG),
            is_following=self.is_following,
            waiting_for=self.waiting_for,
            unacknowledged=None if read is None else self._ago(read),
            trouble=self._trouble,
        )

    def status(self) -> str:
        """Return one line on how it goes."""
        waiting = f"waiting for the broker: {self.waiting_for}" if self.waiting_for else ""
        if self.source is None or self.shipping is None:
            return waiting or "reading back the positions"
        states = self._states()
        total = sum(behind(state, self._position(state)) for state in states)
        count = f"{len(states)} file{'' if len(states) == 1 else 's'}"
        line = f"{count}, {format_size(total)} behind"
        return ", ".join(filter(None, [line, waiting, self._trouble]))

    def report(self) -> HostReport:
        """Return the whole of it."""
        positions = None if self.shipping is None else self.shipping.positions
        unacknowledged = self.meter.unacknowledged()
        troubles = [] if self.source is None else self.source.troubles()
        shown = [Trouble(trouble.path, trouble.text) for trouble in troubles]
        shown += [Trouble(PATH, self._trouble)] if self._trouble else []
        return HostReport(
            host=self._host,
            agent="" if self.session is None else str(self.session.agent),
            sequence=0 if positions is None else positions.sequence,
            running=True,
            files=tuple(
                self._file(state, unacknowledged.get(state.file)) for state in self._states()
            ),
            pid=os.getpid(),
            up_since=rfc3339(self.meter.since),
            last_ack=None if self.meter.last_ack is None else rfc3339(self.meter.last_ack),
            waiting_for=self.waiting_for,
            lost_bytes=dict(self.meter.lost),
            troubles=tuple(shown),
            passed_over=() if self.source is None else tuple(self.source.passed_over()),
        )

    @property
    def _trouble(self) -> str:
        return "" if self.spool is None else self.spool.trouble

    def _states(self) -> list[FileState]:
        states = [] if self.source is None else self.source.states()
        if self.spool is None:
            return states
        return [replace(state, size=state.size + self.spool.ahead) for state in states]

    def _file(self, state: FileState, read: int | None) -> FileReport:
        position = self._position(state)
        known = [since for since in (state.since, read) if since is not None]
        size, lines = self.meter.rate(state.file)
        return FileReport(
            path=state.path,
            file=state.file,
            state=state.stage.value,
            reason=reason_for(state, position, self.waiting_for),
            size_bytes=state.size,
            position_bytes=position,
            behind_bytes=behind(state, position),
            oldest_unshipped_seconds=self._ago(min(known)) if known else None,
            bytes_per_second=round(size, 1),
            lines_per_second=round(lines, 1),
            last_read=rfc3339(state.seen) if state.seen else None,
        )

    def _position(self, state: FileState) -> int:
        return 0 if self.shipping is None else self.shipping.position(state.file)

    def _ago(self, moment: int) -> float:
        return round(max(0, self._clock() - moment) / _SECOND, 3)


def rfc3339(nanoseconds: int) -> str:
    """Write a moment in UTC, to the second."""
    moment = datetime.fromtimestamp(nanoseconds // _SECOND, UTC)
    return moment.isoformat().replace("+00:00", "Z")
