"""What a running receiver has done, and the state of all its partitions.

The health page, the status line, metrics and the answer to `logreceiver status` are made from it
when somebody asks. Counted once for each report of a task, never for each line. What an operator
has to know is logged.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, FiniteFloat, StringConstraints, TypeAdapter, ValidationError

from nats_logship.app.pages import Page, health_page
from nats_logship.app.text import format_count
from nats_logship.app.timestamps import SECOND, format_time
from nats_logship.app.units import format_size
from nats_logship.client.connection import Connection
from nats_logship.wire.message import Unit
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Blocked, Cause, Done, Report
from receiver.storage.anomalies import Anomaly, AnomalyKind, name_gap_report


class Blockade(BaseModel):
    """Why a partition is blocked, and since when (RFC 3339)."""

    cause: str
    detail: str
    since: str


class PartitionReport(BaseModel):
    """What only the owner of a partition knows; None for what nobody has answered.

    Gaps and quarantined messages are those of the last day, or since the receiver started;
    `gaps_of` counts gaps by host. The partition is `starting` until its first Spark task has
    reported. `standby` names the receivers that wait to take the partition over.
    """

    lines_per_second: FiniteFloat | None = None
    blocked: Blockade | None = None
    gaps: int | None = None
    gaps_of: Mapping[str, int] | None = None
    quarantined: int | None = None
    starting: bool = False
    standby: Sequence[str] = ()


class StandbyQuestion(BaseModel):
    """What a standby asks the owner of a partition: are you running? It is called `standby`.

    Any client may send one.
    """

    partition: int
    standby: Annotated[str, StringConstraints(min_length=1, max_length=300)]


REPORTS = TypeAdapter(dict[int, PartitionReport])
"""A receiver's answer: reports by partition."""


_MOST_LOGGED = 20  # anomalies of a report
_DAY = 24 * 3600 * SECOND
_LONG = 60.0  # seconds; a shorter block may end by itself
_LASTING_REFUSALS = 15  # in a row: a broker that restarts refuses for less than half a minute
_MOST_STANDBYS = 8  # that are named
_STANDBY_FOR = 6 * SECOND  # for which a standby is named after it has asked
_RECENT = 70 * SECOND  # longer than a session

_SINGULAR: Mapping[Unit, str] = {"bytes": "byte", "entries": "entry"}

logger = logging.getLogger(__name__)


def _count_by_unit() -> Mapping[Unit, Counter[str]]:
    return {"bytes": Counter(), "entries": Counter()}


@dataclass(slots=True)
class PartitionMeter:
    """Counts and state of one partition; times are nanoseconds since the epoch, 0 for never."""

    partition: int
    clock: Callable[[], int]
    rate: tuple[float, float] = (0.0, 0.0)  # bytes and lines a second, of the last session
    began_at: int = 0  # of the last session
    next: int = 0  # the first sequence that no file has yet
    epoch: int = 0
    owner: str = ""  # of the partition, while this receiver is a standby
    successor: str = ""  # the receiver that has taken it over, and what an operator has to do
    messages: int = 0
    lines: int = 0
    bytes: int = 0
    batches: int = 0
    quarantined: int = 0
    seconds: float = 0.0  # that all batches took together
    pending: int = 0  # messages that waited after the last batch
    stored_at: int = 0  # when the broker stored the last message that was received
    committed_at: int = 0
    blocked: Blocked | None = None
    blocked_since: int = 0
    is_starting: bool = False
    standbys: dict[str, int] = field(default_factory=dict)  # when each has asked last, by name
    found: Counter[str] = field(default_factory=Counter)  # anomalies by kind
    found_sizes: Mapping[Unit, Counter[str]] = field(default_factory=_count_by_unit)
    _logged: Blocked | None = None
    _refusals: int = 0  # of the broker, in a row
    # of the last day: when, gaps by host, quarantined messages
    _recent: deque[tuple[int, Counter[str], int]] = field(default_factory=deque)

    def note_claim(self, offset: Offset) -> None:
        """Note that this receiver owns the partition, and where it goes on."""
        self.next, self.epoch, self.owner = offset.next, offset.epoch, ""
        self.blocked, self.blocked_since, self.began_at = None, 0, self.clock()
        self._logged = None
        self.stored_at = offset.stored_at or self.stored_at

    def count(self, report: Report) -> None:
        """Count and log what a session has committed; the partition is not blocked."""
        done, now = report.done, self.clock()
        self._unblock()
        self.next, self.pending = done.until, done.pending
        self.batches += report.batches
        self.seconds += report.seconds
        self.messages += done.messages
        self.lines += done.lines
        self.bytes += done.size
        self.quarantined += done.quarantined
        self.stored_at = done.stored_at or self.stored_at
        self.committed_at = now if report.batches else self.committed_at
        seconds = max(1.0, (now - self.began_at) / SECOND)
        self.rate = done.size / seconds, done.lines / seconds
        self._count_anomalies(done, now)
        _log(done)

    def _count_anomalies(self, done: Done, now: int) -> None:
        for anomaly in done.anomalies:
            self.found[anomaly.kind.value] += 1
            self.found_sizes[anomaly.unit][anomaly.kind.value] += anomaly.size
        gaps = Counter(one.host for one in done.anomalies if one.kind.is_gap)
        if gaps or done.quarantined:
            self._recent.append((now, gaps, done.quarantined))

    def note_progress(self, committed: int) -> None:
        """Note how far a task has committed that has not reported yet."""
        self.next, self.committed_at = committed, self.clock()
        self._unblock()

    def _unblock(self) -> None:
        if self._logged is not None:
            logger.info("partition %d: resumed", self.partition)
        self.blocked, self.blocked_since = None, 0
        self._logged, self._refusals = None, 0

    def note_blocked(self, blocked: Blocked) -> None:
        """Note that the partition is blocked, since the first such note.

        Each reason is logged once. A broker that restarts blocks all partitions for a moment, which
        its connection logs; for a partition it is logged if it lasts.
        """
        self._refusals = self._refusals + 1 if blocked.cause is Cause.BROKER else 0
        if blocked != self._logged and self._refusals in (0, _LASTING_REFUSALS):
            self._logged = blocked
            logger.error(
                "partition %d is blocked, its lines wait in the stream: %s: %s",
                self.partition,
                blocked.cause.value,
                blocked.detail,
            )
        self.blocked = blocked
        self.blocked_since = self.blocked_since or self.clock()

    def note_released(self, *, owner: str = "", successor: str = "") -> None:
        """Note that another receiver owns the partition: `owner` for now, `successor` for good."""
        self.owner, self.successor = owner, successor
        self.pending, self.blocked, self.blocked_since = 0, None, 0

    def add_standby(self, standby: str) -> None:
        """Note that a standby waits for the partition; only those that asked last are kept."""
        self.standbys[standby] = self.clock()
        for name in sorted(self.standbys, key=self.standbys.__getitem__)[:-_MOST_STANDBYS]:
            del self.standbys[name]

    def lag_seconds(self, now: int) -> float:
        """Return the age of the last received line while others wait behind it, else 0."""
        if not self.pending or not self.stored_at:
            return 0.0
        return max(0, now - self.stored_at) / SECOND

    def rate_at(self, now: int) -> tuple[float, float]:
        """Return bytes and lines a second; 0 if nothing was committed lately."""
        return self.rate if now - self.committed_at < _RECENT else (0.0, 0.0)

    def find_problem(self, now: int) -> str:
        """Return why the partition has not been received for a minute; empty if it is received."""
        seconds = (now - self.blocked_since) / SECOND
        if self.blocked and seconds >= _LONG:
            reason = f"{self.blocked.cause.value}: {self.blocked.detail}"
            return f"partition {self.partition} is blocked for {seconds:.0f} s: {reason}"
        return ""

    def report(self, now: int) -> PartitionReport:
        """Return what only the owner knows."""
        blocked = None
        if self.blocked:
            blocked = Blockade(
                cause=self.blocked.cause.value,
                detail=self.blocked.detail,
                since=format_time(self.blocked_since, "seconds"),
            )
        _, lines = self.rate_at(now)
        while self._recent and self._recent[0][0] < now - _DAY:
            self._recent.popleft()
        gaps_of = sum((gaps for _, gaps, _ in self._recent), Counter[str]())
        return PartitionReport(
            lines_per_second=round(lines, 1),
            blocked=blocked,
            gaps=gaps_of.total(),
            gaps_of=gaps_of,
            quarantined=sum(quarantined for _, _, quarantined in self._recent),
            starting=self.is_starting,
            standby=sorted(one for one, at in self.standbys.items() if now - at < _STANDBY_FOR),
        )


def _log(done: Done) -> None:
    lines = [_describe(anomaly) for anomaly in done.anomalies[:_MOST_LOGGED]]
    if rest := done.anomalies[_MOST_LOGGED:]:
        lines.append(
            f"{len(rest)} more of these; every gap is in {name_gap_report(done.partition)}"
        )
    lines += done.notices
    if done.quarantined:
        messages = format_count(done.quarantined, "message", "were")
        lines.append(f"{messages} put into .quarantine: not readable as lines")
    for line in lines:
        logger.warning("partition %d: %s", done.partition, line)


def _describe(anomaly: Anomaly) -> str:
    if anomaly.kind is AnomalyKind.LOSS:
        since = f"since sequence {anomaly.after}" if anomaly.after else "from the first on"
        return (
            f"loss: messages of host {anomaly.host} {since} were removed from the stream before "
            f"they were received, seen at sequence {anomaly.sequence}"
        )
    size = format_count(anomaly.size, _SINGULAR[anomaly.unit])
    return (
        f"{anomaly.kind.value} of {size}: host {anomaly.host}, file {anomaly.file!r}, "
        f"{anomaly.unit} {anomaly.start} to {anomaly.end}, seen at sequence {anomaly.sequence}"
    )


@dataclass(slots=True)
class Meter:
    """The meters of all partitions; `clock` gives nanoseconds since the epoch."""

    clock: Callable[[], int]
    connection: Connection | None = None
    partitions: dict[int, PartitionMeter] = field(default_factory=dict)

    def expect(self, partition: int) -> PartitionMeter:
        """Return the meter of a partition that is to be received."""
        return self.partitions.setdefault(partition, PartitionMeter(partition, self.clock))

    @property
    def sorted_partitions(self) -> list[PartitionMeter]:
        """All meters, by partition."""
        return [meter for _, meter in sorted(self.partitions.items())]

    @property
    def away(self) -> str:
        """Why the broker is away, empty while it is there."""
        return self.connection.away if self.connection else ""

    @property
    def is_ready(self) -> bool:
        """Whether Spark has started, and each partition is owned, waited for or blocked."""
        meters = self.partitions.values()
        is_started = bool(meters) and all(one.epoch or one.owner or one.blocked for one in meters)
        return is_started or bool(self.away)

    def health(self) -> Page:
        """Return the page of `/healthz`.

        A receiver that has lost a partition and receives others is well: a restart would take the
        partition back.
        """
        meters = self.sorted_partitions
        problems = (problem for one in meters if (problem := one.find_problem(self.clock())))
        lost = (
            f"partition {one.partition} was taken over by {one.successor}"
            for one in meters
            if one.successor
        )
        return health_page(self._not_receiving() or "; ".join(problems), "; ".join(("ok", *lost)))

    def report(self, question: bytes = b"") -> bytes:
        """Return reports by partition as JSON; `{}` for a standby, which is noted."""
        with suppress(ValidationError):
            asked = StandbyQuestion.model_validate_json(question)
            if meter := self.partitions.get(asked.partition):
                meter.add_standby(asked.standby)
            return b"{}"
        now = self.clock()
        return REPORTS.dump_json({one.partition: one.report(now) for one in self.sorted_partitions})

    def status(self) -> str:
        """Return the state in one line, for the service manager."""
        return self._not_receiving() or "; ".join(self._describe())

    def is_moving(self, most: float) -> bool:
        """Return True: what can hang is in tasks, and a task that hangs blocks its partition."""
        return most > 0

    def left(self) -> int:
        """Return how many messages wait, as the last tasks have counted them."""
        return sum(one.pending for one in self.partitions.values())

    def _not_receiving(self) -> str:
        if self.away:
            return f"waiting for the broker: {self.away}"
        return "" if self.is_ready else "starting"

    def _describe(self) -> Iterator[str]:
        meters, now = self.sorted_partitions, self.clock()
        if ours := [one for one in meters if not one.owner and not one.successor]:
            pending = sum(one.pending for one in ours)
            rate = format_size(int(sum(one.rate_at(now)[0] for one in ours)))
            behind = format_count(pending, "message", form=",")
            yield f"{format_count(len(ours), 'partition')}, {behind} behind, {rate}/s"
        for one in meters:
            if one.owner:
                yield f"standing by behind {one.owner}: {one.partition}"
        yield from (f"blocked: {one.partition}" for one in meters if one.blocked)
        yield from (f"taken over by others: {one.partition}" for one in meters if one.successor)
