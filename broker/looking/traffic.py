"""What moves at the broker: rates in and out by partition and host, how the store fills, who is slow or silent.

Counts what it is told of; asks nobody. Clocks are passed in: `now` in seconds of any clock that does not jump, times
of storage in nanoseconds since the epoch, by the broker's.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from broker.app.rate import Rate
from broker.client.arrived import Arrived
from broker.looking.message import nanoseconds
from broker.looking.sight import Status
from broker.looking.told import Told, told
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["HostFlow", "PartitionFlow", "Picture", "Traffic"]

_SECOND = 1_000_000_000
_FILL_SPAN = 60.0  # seconds that the speed of filling is taken over
_SOONEST = 3.0  # of them before it is told
_FARTHEST = 30 * 86_400.0  # seconds; a store that takes longer to fill does not
_DAY = 86_400 * _SECOND
_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True)
class PartitionFlow:
    """A partition: lines and bytes a second that came in and that its receiver committed, and what waits.

    Bytes in are payloads as stored, compressed ones as such; bytes out are those of lines. None where no receiver is known.
    """

    partition: int
    lines_in: float
    bytes_in: float
    lines_out: float | None
    bytes_out: float | None
    waiting: int | None
    age: float | None
    owner: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class HostFlow:
    """A host: lines and bytes a second, for how long nothing has come, and how old its last lines were when they were stored.

    `delay` is by two clocks, the host's and the broker's, and None where the message does not say.
    """

    host: str
    lines: float
    bytes: float
    silent: float
    delay: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it at one moment; `full_in` is in seconds, None where the store does not fill.

    `skipped` is how many messages were too many to look at, and are in no rate.
    """

    status: Status
    partitions: tuple[PartitionFlow, ...]
    hosts: tuple[HostFlow, ...]
    lines_in: float
    bytes_in: float
    used: float | None
    full_in: float | None
    skipped: int
    trouble: str = ""


@dataclass(slots=True)
class _Last:
    stored_at: int
    delay: float | None


@dataclass(slots=True)
class _Out:
    lines: int
    bytes: int
    rate: Rate


class Traffic:
    """Counts from the moment it was made."""

    def __init__(self, now: float) -> None:
        """Begin with nothing."""
        self._began = now
        self._total = Rate(now, now)
        self._partitions: dict[int, Rate] = {}
        self._hosts: dict[str, Rate] = {}
        self._last: dict[str, _Last] = {}
        self._out: dict[int, _Out] = {}
        self._fill: deque[tuple[float, int]] = deque()
        self._subjects: dict[str, Subject | None] = {}
        self.skipped = 0

    def known(self, stored_at: int, arrived: Arrived) -> None:
        """Take in when a host was last heard of, before the counting began."""
        if (parsed := self._parse(arrived.subject)) and (message := told(arrived)):
            self._heard_of(parsed.host, stored_at, message)

    def arrived(self, stored_at: int, arrived: Arrived, now: float) -> None:
        """Count a message that came in; what a receiver sets aside has bytes, but no lines and no host."""
        parsed = self._parse(arrived.subject)
        if parsed is None:
            return
        message, size = told(arrived), arrived.size
        lines = message.lines if message else 0
        self._total.add(size, lines, now)
        _rate(self._partitions, parsed.partition, self._began, now).add(size, lines, now)
        if message:
            _rate(self._hosts, parsed.host, self._began, now).add(size, lines, now)
            self._heard_of(parsed.host, stored_at, message)

    def glanced(self, status: Status, now: float) -> None:
        """Take in how far receivers are, and how full the store is."""
        for one in status.partitions:
            if one.lines is None or one.bytes is None:
                continue
            before = self._out.setdefault(one.partition, _Out(one.lines, one.bytes, Rate(now, now)))
            # a total that falls is another receiver's, or one moved by hand
            before.rate.add(max(0, one.bytes - before.bytes), max(0, one.lines - before.lines), now)
            before.bytes, before.lines = one.bytes, one.lines
        self._fill.append((now, status.bytes))
        while self._fill[0][0] < now - _FILL_SPAN:
            self._fill.popleft()

    def picture(self, status: Status, now: float, trouble: str = "") -> Picture:
        """Return what is known now; `trouble` says why it may be old."""
        for host in [host for host, rate in self._hosts.items() if rate.is_over(now)]:
            del self._hosts[host]
        size, lines = self._total.per_second(now)
        used, full_in = self._filling(status)
        return Picture(
            status=status,
            partitions=tuple(self._partition_flows(status, now)),
            hosts=tuple(self._host_flows(nanoseconds(status.now), now)),
            lines_in=lines,
            bytes_in=size,
            used=used,
            full_in=full_in,
            skipped=self.skipped,
            trouble=trouble,
        )

    def _parse(self, subject: str) -> Subject | None:
        if subject not in self._subjects:
            try:
                self._subjects[subject] = Subject.parse(subject)
            except (InvalidSubject, InvalidHost):
                self._subjects[subject] = None
        return self._subjects[subject]

    def _heard_of(self, host: str, stored_at: int, message: Told) -> None:
        last = self._last.get(host)
        if last is None or stored_at >= last.stored_at:
            self._last[host] = _Last(stored_at, _delay(stored_at, message))

    def _partition_flows(self, status: Status, now: float) -> Iterable[PartitionFlow]:
        for one in status.partitions:
            came = self._partitions.get(one.partition)
            size_in, lines_in = came.per_second(now) if came else (0.0, 0.0)
            out = self._out.get(one.partition)
            size_out, lines_out = out.rate.per_second(now) if out else (None, None)
            yield PartitionFlow(
                partition=one.partition,
                lines_in=lines_in,
                bytes_in=size_in,
                lines_out=lines_out,
                bytes_out=size_out,
                waiting=one.pending,
                age=one.age(status.now),
                owner=one.owner,
                error=one.error,
            )

    def _host_flows(self, stored_now: int, now: float) -> Iterable[HostFlow]:
        for host, last in self._last.items():
            rate = self._hosts.get(host)
            size, lines = rate.per_second(now) if rate else (0.0, 0.0)
            silent = max(0.0, (stored_now - last.stored_at) / _SECOND)
            yield HostFlow(host, lines, size, silent, last.delay)

    def _filling(self, status: Status) -> tuple[float | None, float | None]:
        """Return how much of the stream's bytes is used, from 0 to 1, and in how many seconds it is full at this speed."""
        if not status.max_bytes:
            return None, None
        used = status.bytes / status.max_bytes
        if not self._fill:
            return used, None
        (began, before), (ended, after) = self._fill[0], self._fill[-1]
        if ended - began < _SOONEST or after <= before:
            return used, None
        full_in = (status.max_bytes - after) * (ended - began) / (after - before)
        return used, full_in if full_in < _FARTHEST else None


def _rate(rates: dict[_Key, Rate], key: _Key, began: float, now: float) -> Rate:
    return rates.setdefault(key, Rate(began, now))


def _delay(stored_at: int, message: Told) -> float | None:
    if message.origin is None:
        return None
    delay = stored_at - message.origin.read_at
    return max(0, delay) / _SECOND if abs(delay) < _DAY else None  # a clock that is anywhere
