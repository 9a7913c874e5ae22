"""What moves at a broker, for `logbroker top`: rates by partition and host, and who is behind, slow or silent. Decides only.

Clocks are passed in: `now` in seconds of any clock that does not jump, times of storage in nanoseconds since the epoch,
by the broker's clock.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from broker.app.rate import Rate
from broker.inspect.message import StoredMessage
from broker.inspect.status import PartitionStatus, Status

__all__ = ["HostFlow", "PartitionFlow", "Traffic", "View"]

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


@dataclass(frozen=True, slots=True)
class PartitionFlow:
    """A partition: lines and bytes a second that came in, and that its receiver committed (None where none is known).

    Bytes in are payloads as stored, compressed ones as such; bytes out are those of lines.
    """

    partition: int
    lines_in: float
    bytes_in: float
    lines_out: float | None
    bytes_out: float | None
    behind: int | None
    behind_seconds: float | None
    owner: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class HostFlow:
    """A host: lines and bytes a second, and for how many seconds no message has come.

    `delay` is how old its last lines were when they were stored, by two clocks, None where the message does not say.
    """

    host: str
    lines: float
    bytes: float
    silent: float
    delay: float | None


@dataclass(frozen=True, slots=True)
class View:
    """All of it at one moment; `trouble` says why the status may be old."""

    status: Status
    partitions: tuple[PartitionFlow, ...]
    hosts: tuple[HostFlow, ...]
    lines_in: float
    bytes_in: float
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"status": self.status.document()}


@dataclass(slots=True)
class _Host:
    rate: Rate
    stored_at: int
    delay: float | None


@dataclass(slots=True)
class _Committed:
    lines: int
    bytes: int
    rate: Rate


class Traffic:
    """Counts what is stored from a moment on; what was stored before is known, and in no rate."""

    def __init__(self, now: float, stored_now: int) -> None:
        """Begin with nothing, at a moment of both clocks."""
        self._began, self._stored_began = now, stored_now
        self._total = Rate(now, now)
        self._partitions: dict[int, Rate] = {}
        self._hosts: dict[str, _Host] = {}
        self._committed: dict[int, _Committed] = {}

    def add(self, message: StoredMessage, now: float) -> None:
        """Take note of a message; one that a receiver would quarantine has bytes, but no lines and no host."""
        if message.subject is None:
            return
        lines = 0 if message.trouble else message.line_count
        host = None if message.trouble else self._seen(message)
        if message.stored_at < self._stored_began:
            return
        self._total.add(message.size, lines, now)
        came = self._partitions.setdefault(message.subject.partition, Rate(self._began, now))
        came.add(message.size, lines, now)
        if host is not None:
            host.rate.add(message.size, lines, now)

    def _seen(self, message: StoredMessage) -> _Host:
        found = self._hosts.get(message.host)
        if found is None:
            found = self._hosts[message.host] = _Host(Rate(self._began, self._began), 0, None)
        if message.stored_at >= found.stored_at:
            found.stored_at, found.delay = message.stored_at, _delay(message)
        return found

    def look(self, status: Status, now: float) -> None:
        """Take note of how far receivers are."""
        for one in status.partitions:
            if one.lines is None or one.bytes is None:
                continue
            made = _Committed(one.lines, one.bytes, Rate(now, now))
            before = self._committed.setdefault(one.partition, made)
            # a total that falls is another receiver's, or one that a person has moved
            more = max(0, one.bytes - before.bytes), max(0, one.lines - before.lines)
            before.rate.add(*more, now)
            before.bytes, before.lines = one.bytes, one.lines

    def view(self, status: Status, now: float, trouble: str = "") -> View:
        """Return what is known now."""
        size, lines = self._total.per_second(now)
        return View(
            status=status,
            partitions=tuple(self._partition(one, now) for one in status.partitions),
            hosts=tuple(self._host_flows(status.nanoseconds, now)),
            lines_in=lines,
            bytes_in=size,
            trouble=trouble,
        )

    def _partition(self, one: PartitionStatus, now: float) -> PartitionFlow:
        came, committed = self._partitions.get(one.partition), self._committed.get(one.partition)
        size_in, lines_in = came.per_second(now) if came else (0.0, 0.0)
        size_out, lines_out = committed.rate.per_second(now) if committed else (None, None)
        return PartitionFlow(
            partition=one.partition,
            lines_in=lines_in,
            bytes_in=size_in,
            lines_out=lines_out,
            bytes_out=size_out,
            behind=one.behind,
            behind_seconds=one.behind_seconds,
            owner=one.owner,
            error=one.error,
        )

    def _host_flows(self, stored_now: int, now: float) -> Iterator[HostFlow]:
        for host, found in self._hosts.items():
            size, lines = found.rate.per_second(now)
            silent = max(0.0, (stored_now - found.stored_at) / _SECOND)
            yield HostFlow(host, lines, size, silent, found.delay)


def _delay(message: StoredMessage) -> float | None:
    if message.origin is None:
        return None
    delay = message.stored_at - message.origin.read_at
    return max(0, delay) / _SECOND if abs(delay) < _DAY else None  # a clock that is anywhere
