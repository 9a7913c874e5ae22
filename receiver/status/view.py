"""What a running receiver looks like from outside: put together when somebody asks, and only then. Changes nothing."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from broker.app.desk import health_page
from broker.app.listening import Page
from broker.app.sizes import format_size
from broker.client.connection import Connection
from receiver.meter import Meter, Standing
from receiver.status.health import Vitals, ailment
from receiver.status.progress import Glance

__all__ = ["View"]

_SECOND = 1_000_000_000


class View:
    """One receiver; `clock` is nanoseconds since the epoch."""

    def __init__(self, connection: Connection, meter: Meter, clock: Callable[[], int]) -> None:
        """Look at what is there from the start on."""
        self.meter = meter
        self._connection = connection
        self._clock = clock

    @property
    def waiting_for(self) -> str:
        """What the receiver waits for, empty while all goes well."""
        return self._connection.away

    @property
    def is_following(self) -> bool:
        """Whether Spark has started and every partition is ours, or another's and waited for."""
        standings = self.meter.partitions.values()
        return bool(standings) and all(s.epoch or s.owner for s in standings)

    @property
    def is_ready(self) -> bool:
        """Whether it works, or waits for the broker."""
        return self.is_following or bool(self.waiting_for)

    def news(self) -> object:
        """Return None: the status is quickly made."""

    def is_moving(self, most: float) -> bool:
        """Return True: what could hang does so in a task, which blocks its partition, and is told there."""
        return most > 0

    def lag(self, partition: int) -> float:
        """Return the age in seconds of the last received line while others wait behind it, else 0."""
        standing = self.meter.partitions[partition]
        if not standing.pending or not standing.stored_at:
            return 0.0
        return max(0, self._clock() - standing.stored_at) / _SECOND

    def report(self) -> bytes:
        """Return what `status` is told: JSON, by partition what only the owner knows."""
        now = self._clock() / _SECOND
        told = {}
        for number, standing in self.meter.partitions.items():
            size, lines = standing.rate.per_second(now)
            told[str(number)] = {
                "lines_per_second": round(lines, 1),
                "bytes_per_second": round(size, 1),
                "batch_seconds": round(standing.batch_seconds, 4),
                "blocked": _blockade(standing),
            }
        return json.dumps({"partitions": told}).encode()

    def glance(self) -> Glance:
        """Return how far it has come, all partitions together; the lag is that of the one furthest behind."""
        standings = self.meter.partitions
        return Glance(
            at=self._clock() / _SECOND,
            pending=sum(standing.pending for standing in standings.values()),
            messages=sum(standing.messages for standing in standings.values()),
            bytes=sum(standing.bytes for standing in standings.values()),
            lag=max(map(self.lag, standings), default=0.0),
        )

    def health(self) -> Page:
        """Return the page of `/healthz`."""
        return health_page(ailment(self.vitals()))

    def vitals(self) -> Vitals:
        """Return what tells whether the receiver is well."""
        now = self._clock()
        return Vitals(
            self.waiting_for,
            self.is_following,
            tuple(
                (
                    number,
                    f"{standing.blocked.cause.value}: {standing.blocked.detail}",
                    (now - standing.blocked_since) / _SECOND,
                )
                for number, standing in sorted(self.meter.partitions.items())
                if standing.blocked is not None
            ),
            tuple(
                (number, standing.successor)
                for number, standing in sorted(self.meter.partitions.items())
                if standing.successor
            ),
        )

    def status(self) -> str:
        """Return one line on how it goes."""
        if self.waiting_for:
            return f"waiting for the broker: {self.waiting_for}"
        if not self.is_following:
            return "starting"
        standings = sorted(self.meter.partitions.items())
        return "; ".join(
            (
                *self._work([s for _, s in standings if not s.owner and not s.successor]),
                *_waits(standings),
                *_list("blocked", [n for n, s in standings if s.blocked]),
                *_list("taken over by another receiver", [n for n, s in standings if s.successor]),
            )
        )

    def _work(self, ours: Sequence[Standing]) -> Iterator[str]:
        if ours:
            now = self._clock() / _SECOND
            pending = sum(standing.pending for standing in ours)
            rate = sum(standing.rate.per_second(now)[0] for standing in ours)
            words = f"{len(ours)} partition{'' if len(ours) == 1 else 's'}"
            yield f"{words}, {pending:,} messages behind, {format_size(int(rate))}/s"


def _waits(standings: Iterable[tuple[int, Standing]]) -> Iterator[str]:
    """Say behind whom we stand by."""
    waited: dict[str, list[int]] = {}
    for number, standing in standings:
        if standing.owner:
            waited.setdefault(standing.owner, []).append(number)
    for owner, numbers in waited.items():
        yield f"standing by behind {owner} (partition {', '.join(map(str, numbers))})"


def _list(what: str, numbers: Sequence[int]) -> Iterator[str]:
    if numbers:
        yield f"{what}: {', '.join(map(str, numbers))}"


def _blockade(standing: Standing) -> dict[str, str] | None:
    if standing.blocked is None:
        return None
    since = datetime.fromtimestamp(standing.blocked_since // _SECOND, UTC)
    return {
        "cause": standing.blocked.cause.value,
        "detail": standing.blocked.detail,
        "since": since.isoformat().replace("+00:00", "Z"),
    }
