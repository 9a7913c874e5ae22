"""A running receiver: one report, made when somebody asks. Health page, status line, metrics, progress and `status` use it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.app.desk import health_page
from broker.app.listening import Page
from broker.app.sizes import format_size
from broker.client.connection import Connection
from receiver.meter import Meter, Standing

__all__ = ["PartitionReport", "ReceiverReport", "View"]

_SECOND = 1_000_000_000
_LONG = 60.0  # seconds; what is blocked for less may pass by itself


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """A partition at `now` (nanoseconds since the epoch), with what its receiver has counted."""

    partition: int
    counted: Standing
    now: int

    @property
    def lag_seconds(self) -> float:
        """The age of the last received line while others wait behind it, else 0."""
        if not self.counted.pending or not self.counted.stored_at:
            return 0.0
        return max(0, self.now - self.counted.stored_at) / _SECOND

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes and lines a second over about the last ten seconds."""
        return self.counted.rate.per_second(self.now / _SECOND)

    @property
    def problem(self) -> str:
        """Why the partition is not received, empty when it is."""
        counted, seconds = self.counted, (self.now - self.counted.blocked_since) / _SECOND
        if counted.successor:
            return f"partition {self.partition} was taken over by {counted.successor}"
        if counted.blocked and seconds >= _LONG:
            reason = f"{counted.blocked.cause.value}: {counted.blocked.detail}"
            return f"partition {self.partition} is blocked for {seconds:.0f} s: {reason}"
        return ""

    def document(self) -> dict[str, object]:
        """Return what only the owner knows, for JSON."""
        size, lines = self.rates
        blocked, since = self.counted.blocked, self.counted.blocked_since // _SECOND
        return {
            "lines_per_second": round(lines, 1),
            "bytes_per_second": round(size, 1),
            "batch_seconds": round(self.counted.batch_seconds, 4),
            "blocked": blocked
            and {
                "cause": blocked.cause.value,
                "detail": blocked.detail,
                "since": datetime.fromtimestamp(since, UTC).isoformat().replace("+00:00", "Z"),
            },
        }


@dataclass(frozen=True, slots=True)
class ReceiverReport:
    """All partitions by number `at` a time (seconds); `waiting_for` says why the broker is away, empty while it is there."""

    at: float
    waiting_for: str
    partitions: Sequence[PartitionReport]

    @property
    def is_following(self) -> bool:
        """Whether Spark has started and every partition is ours, or another's and waited for."""
        counted = [one.counted for one in self.partitions]
        return bool(counted) and all(one.epoch or one.owner for one in counted)

    @property
    def problem(self) -> str:
        """Why the receiver does not receive everything, empty when it does."""
        return self._not_receiving or "; ".join(p.problem for p in self.partitions if p.problem)

    @property
    def sentence(self) -> str:
        """One line on how the receiver does."""
        return self._not_receiving or "; ".join(self._work())

    @property
    def _not_receiving(self) -> str:
        if self.waiting_for:
            return f"waiting for the broker: {self.waiting_for}"
        return "" if self.is_following else "starting"

    def _work(self) -> Iterator[str]:
        ours = [p for p in self.partitions if not p.counted.owner and not p.counted.successor]
        if ours:
            pending = sum(one.counted.pending for one in ours)
            rate = format_size(int(sum(one.rates[0] for one in ours)))
            plural = "" if len(ours) == 1 else "s"
            yield f"{len(ours)} partition{plural}, {pending:,} messages behind, {rate}/s"
        for owner in sorted({p.counted.owner for p in self.partitions} - {""}):
            numbers = _numbers(p for p in self.partitions if p.counted.owner == owner)
            yield f"standing by behind {owner} (partition {numbers})"
        if blocked := _numbers(p for p in self.partitions if p.counted.blocked):
            yield f"blocked: {blocked}"
        if lost := _numbers(p for p in self.partitions if p.counted.successor):
            yield f"taken over by another receiver: {lost}"

    def document(self) -> bytes:
        """Return the answer to `status`: JSON, by partition."""
        partitions = {str(one.partition): one.document() for one in self.partitions}
        return json.dumps({"partitions": partitions}).encode()


def _numbers(partitions: Iterable[PartitionReport]) -> str:
    return ", ".join(str(one.partition) for one in partitions)


class View:
    """Reports of one receiver; `clock` is nanoseconds since the epoch."""

    def __init__(self, connection: Connection, meter: Meter, clock: Callable[[], int]) -> None:
        """Remember where to look."""
        self._meter = meter
        self._connection = connection
        self._clock = clock

    def look(self) -> ReceiverReport:
        """Return the report as of now."""
        now = self._clock()
        partitions = sorted(self._meter.partitions.items())
        return ReceiverReport(
            now / _SECOND,
            self._connection.away,
            [PartitionReport(number, counted, now) for number, counted in partitions],
        )

    def report(self) -> bytes:
        """Return the answer to `status`."""
        return self.look().document()

    def health(self) -> Page:
        """Return the page of `/healthz`."""
        return health_page(self.look().problem)

    @property
    def is_ready(self) -> bool:
        """Whether the receiver works, or waits for the broker."""
        report = self.look()
        return report.is_following or bool(report.waiting_for)

    def news(self) -> object:
        """Return None: the status is quickly made."""

    def is_moving(self, most: float) -> bool:
        """Return True: what could hang does so in a task, which blocks its partition, and is reported there."""
        return most > 0

    def status(self) -> str:
        """Return one line on how the receiver does."""
        return self.look().sentence
