"""What a running receiver has done and how its partitions stand: counted by batches, never by lines, and logged as it happens.

Health page, status line, metrics and the answer to `logreceiver status` are made from it when somebody asks.
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
from nats_logship.wire.offset import Offset
from receiver.consume.assignment import Blocked, Cause, Done, Report
from receiver.storage.anomalies import Anomaly, AnomalyKind, gap_report

_MOST_LOGGED = 20  # anomalies of a report
_DAY = 24 * 3600 * SECOND
_LONG = 60.0  # seconds; what is blocked for less may pass by itself
_OF_A_RESTART = 15  # refusals of a broker that starts, with half a minute of pauses between them
_MOST_STANDBYS = 8  # that are named of a partition
_STANDBY_FOR = 6 * SECOND  # for which each is named after it has asked
_RECENT = 70 * SECOND  # longer than a task

logger = logging.getLogger(__name__)


class Blockade(BaseModel):
    """Why a partition cannot go on, and since when (RFC 3339)."""

    cause: str
    detail: str
    since: str


class PartitionReport(BaseModel):
    """What only the owner of a partition knows; gaps and quarantined messages are those of the last day, or since it started.

    `gaps_of` counts the gaps by host, of those hosts that have any. It is `starting` while Spark has not done its first task
    at the partition, and `standby` names the receivers that wait to take it over.
    """

    lines_per_second: FiniteFloat | None = None
    blocked: Blockade | None = None
    gaps: int | None = None
    gaps_of: Mapping[str, int] | None = None
    quarantined: int | None = None
    starting: bool = False
    standby: Sequence[str] = ()


class StandbyQuestion(BaseModel):
    """What a standby says when it asks whether the owner of a partition lives: who it is. Any client may say so."""

    partition: int
    standby: Annotated[str, StringConstraints(min_length=1, max_length=300)]


REPORTS = TypeAdapter(dict[int, PartitionReport])
"""What a receiver answers to `logreceiver status`: reports by partition."""


@dataclass(slots=True)
class PartitionMeter:
    """How one partition stands; times are nanoseconds since the epoch, as `clock` gives them, 0 for never.

    `next` is the first sequence that no file holds yet; `owner` is who has the partition while this receiver stands by,
    `successor` who took it over for good, and what is to be done about it. `pending` is how many messages waited after the
    last batch, `stored_at` when the last received message was stored, and `seconds` what all batches took together.
    `rate` is bytes and lines a second of the last task, which `began_at`.
    """

    partition: int
    clock: Callable[[], int]
    rate: tuple[float, float] = (0.0, 0.0)
    began_at: int = 0
    next: int = 0
    epoch: int = 0
    owner: str = ""
    successor: str = ""
    messages: int = 0
    lines: int = 0
    bytes: int = 0
    batches: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    pending: int = 0
    stored_at: int = 0
    committed_at: int = 0
    blocked: Blocked | None = None
    blocked_since: int = 0
    _said: Blocked | None = None  # in the log
    _refusals: int = 0  # of the broker, one after the other
    is_starting: bool = False
    standbys: dict[str, int] = field(default_factory=dict)  # by name, when it asked
    found: Counter[str] = field(default_factory=Counter)
    found_bytes: Counter[str] = field(default_factory=Counter)
    # when, gaps by host, quarantined
    _of_a_day: deque[tuple[int, Counter[str], int]] = field(default_factory=deque)

    def note_claim(self, offset: Offset) -> None:
        """Take note that the partition is ours, and where it goes on."""
        self.next, self.epoch, self.owner = offset.next, offset.epoch, ""
        self.blocked, self.blocked_since, self.began_at = None, 0, self.clock()
        self._said = None
        self.stored_at = offset.stored_at or self.stored_at

    def count(self, report: Report) -> None:
        """Count what a task has committed, and log what is to be logged of it; the partition is not blocked."""
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
        for anomaly in done.anomalies:
            self.found[anomaly.kind.value] += 1
            self.found_bytes[anomaly.kind.value] += anomaly.end - anomaly.start
        missing = {AnomalyKind.GAP, AnomalyKind.LOSS}
        gaps = Counter(one.host for one in done.anomalies if one.kind in missing)
        if gaps or done.quarantined:
            self._of_a_day.append((now, gaps, done.quarantined))
        _log(done)

    def note_progress(self, committed: int) -> None:
        """Take note of what a task has committed that has not reported yet."""
        self.next, self.committed_at = committed, self.clock()
        self._unblock()

    def _unblock(self) -> None:
        if self._said is not None:
            logger.info("partition %d: resumed", self.partition)
        self.blocked, self.blocked_since = None, 0
        self._said, self._refusals = None, 0

    def note_blocked(self, blocked: Blocked) -> None:
        """Take note that the partition is blocked, since this was first said.

        Each reason is logged once. A broker that restarts blocks all partitions for a moment, and
        its connection says so; of one partition that is logged when it lasts.
        """
        self._refusals = self._refusals + 1 if blocked.cause is Cause.BROKER else 0
        if blocked != self._said and self._refusals in (0, _OF_A_RESTART):
            self._said = blocked
            logger.error(
                "partition %d is blocked, its lines wait in the stream: %s: %s",
                *(self.partition, blocked.cause.value, blocked.detail),
            )
        self.blocked = blocked
        self.blocked_since = self.blocked_since or self.clock()

    def note_released(self, *, owner: str = "", successor: str = "") -> None:
        """Take note that another receiver has the partition: for now, or for good."""
        self.owner, self.successor = owner, successor
        self.pending, self.blocked, self.blocked_since = 0, None, 0

    def add_standby(self, standby: str) -> None:
        """Take note that a standby waits for the partition; of many, those that asked last are known."""
        self.standbys[standby] = self.clock()
        for name in sorted(self.standbys, key=self.standbys.__getitem__)[:-_MOST_STANDBYS]:
            del self.standbys[name]

    def lag_seconds(self, now: int) -> float:
        """Return the age of the last received line while others wait behind it, else 0."""
        if not self.pending or not self.stored_at:
            return 0.0
        return max(0, now - self.stored_at) / SECOND

    def rate_at(self, now: int) -> tuple[float, float]:
        """Return bytes and lines a second, none where no task has committed anything for a while."""
        return self.rate if now - self.committed_at < _RECENT else (0.0, 0.0)

    def problem(self, now: int) -> str:
        """Return why the partition is not received, empty when it is."""
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
        while self._of_a_day and self._of_a_day[0][0] < now - _DAY:
            self._of_a_day.popleft()
        gaps_of = sum((gaps for _, gaps, _ in self._of_a_day), Counter[str]())
        return PartitionReport(
            lines_per_second=round(lines, 1),
            blocked=blocked,
            gaps=gaps_of.total(),
            gaps_of=gaps_of,
            quarantined=sum(quarantined for _, _, quarantined in self._of_a_day),
            starting=self.is_starting,
            standby=sorted(one for one, at in self.standbys.items() if now - at < _STANDBY_FOR),
        )


@dataclass(slots=True)
class Meter:
    """How one run of the receiver does, and all its `partitions`; `clock` is nanoseconds since the epoch."""

    clock: Callable[[], int]
    connection: Connection | None = None
    partitions: dict[int, PartitionMeter] = field(default_factory=dict)

    def expect(self, partition: int) -> PartitionMeter:
        """Return how a partition that is to be received stands."""
        return self.partitions.setdefault(partition, PartitionMeter(partition, self.clock))

    @property
    def sorted_partitions(self) -> list[PartitionMeter]:
        """All partitions, by number."""
        return [meter for _, meter in sorted(self.partitions.items())]

    @property
    def away(self) -> str:
        """Why the broker is away, empty while it is there."""
        return self.connection.away if self.connection else ""

    @property
    def is_ready(self) -> bool:
        """Whether Spark has started and each partition is ours, waited for or blocked."""
        sorted_partitions = self.partitions.values()
        is_started = bool(sorted_partitions) and all(
            one.epoch or one.owner or one.blocked for one in sorted_partitions
        )
        return is_started or bool(self.away)

    def health(self) -> Page:
        """Return the page of `/healthz`.

        Well is also who has lost a partition and receives others: a restart for it would take the partition back.
        """
        problems = (
            problem for one in self.sorted_partitions if (problem := one.problem(self.clock()))
        )
        lost = (
            f"partition {one.partition} was taken over by {one.successor}"
            for one in self.sorted_partitions
            if one.successor
        )
        return health_page(self._not_receiving() or "; ".join(problems), "; ".join(("ok", *lost)))

    def report(self, asked: bytes = b"") -> bytes:
        """Return the answer to `status`: JSON, by partition; a standby that has `asked` is only noted."""
        with suppress(ValidationError):
            question = StandbyQuestion.model_validate_json(asked)
            if meter := self.partitions.get(question.partition):
                meter.add_standby(question.standby)
            return b"{}"
        now = self.clock()
        return REPORTS.dump_json({one.partition: one.report(now) for one in self.sorted_partitions})

    def status(self) -> str:
        """Return one line on how the receiver does."""
        return self._not_receiving() or "; ".join(self._work())

    def is_moving(self, most: float) -> bool:
        """Return True: what could hang does so in a task, which blocks its partition, and is reported there."""
        return most > 0

    def _not_receiving(self) -> str:
        if self.away:
            return f"waiting for the broker: {self.away}"
        return "" if self.is_ready else "starting"

    def _work(self) -> Iterator[str]:
        all_, now = self.sorted_partitions, self.clock()
        if ours := [one for one in all_ if not one.owner and not one.successor]:
            pending = sum(one.pending for one in ours)
            rate = format_size(int(sum(one.rate_at(now)[0] for one in ours)))
            behind = format_count(pending, "message", form=",")
            yield f"{format_count(len(ours), 'partition')}, {behind} behind, {rate}/s"
        yield from (f"standing by behind {one.owner}: {one.partition}" for one in all_ if one.owner)
        yield from (f"blocked: {one.partition}" for one in all_ if one.blocked)
        yield from (f"taken over by others: {one.partition}" for one in all_ if one.successor)


def _log(done: Done) -> None:
    words = [_describe(anomaly) for anomaly in done.anomalies[:_MOST_LOGGED]]
    if rest := done.anomalies[_MOST_LOGGED:]:
        words.append(f"{len(rest)} more of these; every gap is in {gap_report(done.partition)}")
    words += done.notices
    if done.quarantined:
        aside = format_count(done.quarantined, "message", "were")
        words.append(f"{aside} set aside in .quarantine: no lines")
    for line in words:
        logger.warning("partition %d: %s", done.partition, line)


def _describe(anomaly: Anomaly) -> str:
    if anomaly.kind is AnomalyKind.LOSS:
        since = f"since sequence {anomaly.after}" if anomaly.after else "from the first on"
        return (
            f"loss: messages of host {anomaly.host} {since} were removed from the stream before they were received, seen "
            f"at sequence {anomaly.sequence}"
        )
    return (
        f"{anomaly.kind.value} of {format_count(anomaly.end - anomaly.start, 'byte')}: host {anomaly.host}, file {anomaly.file!r}, "
        f"bytes {anomaly.start} to {anomaly.end}, seen at sequence {anomaly.sequence}"
    )
