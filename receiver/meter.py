"""What a running receiver has done, and the state of all its partitions.

The health page, the status line, metrics and the answer to `logreceiver status` are made from it
when somebody asks.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from nats_logship.app.pages import Page, health_page
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from nats_logship.client.connection import Connection
from receiver.partition_meter import REPORTS, PartitionMeter, StandbyQuestion


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
