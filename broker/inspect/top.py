"""`logbroker top`: watches what moves at a broker, rates by partition and host, and draws it. Changes nothing.

`Traffic` is given its clocks: `now` in seconds of any clock that does not jump, times of storage in nanoseconds since the
epoch, by the broker's clock.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import nsmallest
from typing import Any

from rich.console import Group
from rich.text import Text

from broker.app.exits import OperatorError
from broker.app.rate import Rate
from broker.app.table import plain, table
from broker.app.units import format_size
from broker.client.connection import ELECTION, Connection, ConnectionLost, Rejected, until_answered
from broker.inspect.ask import brief_status
from broker.inspect.message import StoredMessage
from broker.inspect.reader import LAST_PER_SUBJECT, MessageReader, follow
from broker.inspect.status import BrokerStatus, PartitionStatus, short_duration

__all__ = ["HostRates", "PartitionRates", "TopView", "Traffic", "draw", "watch"]

_SECOND = 1_000_000_000
_SILENT = 300.0  # seconds without a message
_PATIENCE = 5.0  # seconds for the broker's answers
_LEAST_HOSTS = 5  # rows that partitions leave them
_PARTITIONS = ("part", "lines/s in", "in", "lines/s out", "out", "behind", "oldest", "receiver")
_HOSTS = ("host", "lines/s", "bytes/s", "silent", "")


@dataclass(frozen=True, slots=True)
class PartitionRates:
    """Lines and bytes a second that came into a partition, and that its receiver committed (None where none is known).

    Bytes in are payloads as stored, compressed ones as such; bytes out are those of lines.
    """

    partition: int
    lines_in: float
    bytes_in: float
    lines_out: float | None
    bytes_out: float | None


@dataclass(frozen=True, slots=True)
class HostRates:
    """Lines and bytes a second of a host, and for how many seconds no message has come."""

    host: str
    lines: float
    bytes: float
    silent: float


@dataclass(frozen=True, slots=True)
class TopView:
    """All of it at one moment; `trouble` says why the status may be old."""

    status: BrokerStatus
    partitions: tuple[PartitionRates, ...]
    hosts: tuple[HostRates, ...]
    lines_in: float
    bytes_in: float
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"status": self.status.document()}


@dataclass(slots=True)
class _Host:
    rate: Rate
    stored_at: int = 0


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
        number, lines = message.subject.partition, 0
        rates = [self._total, self._partitions.setdefault(number, Rate(self._began, now))]
        if not message.trouble:
            lines = message.line_count
            host = self._hosts.setdefault(message.host, _Host(Rate(self._began, self._began)))
            host.stored_at = max(host.stored_at, message.stored_at)
            rates.append(host.rate)
        if message.stored_at >= self._stored_began:
            for rate in rates:
                rate.add(message.size, lines, now)

    def look(self, status: BrokerStatus, now: float) -> None:
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

    def view(self, status: BrokerStatus, now: float, trouble: str = "") -> TopView:
        """Return what is known now."""
        size, lines = self._total.per_second(now)
        return TopView(
            status=status,
            partitions=tuple(self._partition(one.partition, now) for one in status.partitions),
            hosts=tuple(self._host_rates(status.nanoseconds, now)),
            lines_in=lines,
            bytes_in=size,
            trouble=trouble,
        )

    def _partition(self, number: int, now: float) -> PartitionRates:
        came, committed = self._partitions.get(number), self._committed.get(number)
        size_in, lines_in = came.per_second(now) if came else (0.0, 0.0)
        size_out, lines_out = committed.rate.per_second(now) if committed else (None, None)
        return PartitionRates(number, lines_in, size_in, lines_out, size_out)

    def _host_rates(self, stored_now: int, now: float) -> Iterator[HostRates]:
        for host, found in self._hosts.items():
            size, lines = found.rate.per_second(now)
            silent = max(0.0, (stored_now - found.stored_at) / _SECOND)
            yield HostRates(host, lines, size, silent)


async def watch(connection: Connection, interval: float) -> AsyncGenerator[TopView, None]:
    """Yield a view every `interval` seconds, the first one after one; raises what the first look raises.

    A broker that goes away later is waited for, with views that say so.
    """
    clock = asyncio.get_running_loop().time
    status = await until_answered(connection, brief_status, ELECTION)
    traffic = Traffic(clock(), status.nanoseconds)
    # the last message of each host from before, and then what comes
    readers = [
        MessageReader(connection, one.name, LAST_PER_SUBJECT, headers_only=True)
        for one in status.streams
    ]

    async def known(_connection: Connection) -> None:
        for reader, stream in zip(readers, status.streams, strict=True):
            while some := await reader.read_until(stream.last_sequence):
                for message in some:
                    traffic.add(message, clock())

    await until_answered(connection, known, ELECTION)
    counting = asyncio.ensure_future(_count(readers, traffic, clock))
    try:
        while True:
            traffic.look(status, clock())
            await asyncio.sleep(interval)
            if counting.done():
                counting.result()
            status, trouble = await _look(connection, status)
            yield traffic.view(status, clock(), trouble)
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        for reader in readers:
            await reader.close()


async def _count(
    readers: Sequence[MessageReader], traffic: Traffic, clock: Callable[[], float]
) -> None:
    async for some in follow(readers):
        for message in some:
            traffic.add(message, clock())


async def _look(connection: Connection, before: BrokerStatus) -> tuple[BrokerStatus, str]:
    """Return the status; where the broker does not answer the one before, and why."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await brief_status(connection), ""
    except TimeoutError:
        return before, connection.away or f"no answer within {_PATIENCE:g} s"
    except (ConnectionLost, Rejected, OperatorError) as error:
        return before, str(error)


def draw(view: TopView, height: int = 60) -> Group:
    """Return a view as rich draws it, with as many partitions and hosts as fit into so many rows."""
    lines = list(_summary(view))
    space = max(2, height - len(lines) - 4)
    rows = list(zip(view.status.partitions, view.partitions, strict=True))
    # where not all partitions fit, those that are behind by the longest time do
    most = max(1, space - min(len(view.hosts), _LEAST_HOSTS))
    rows = nsmallest(most, rows, lambda row: (-(row[0].behind_seconds or 0), row[0].partition))
    hosts = nsmallest(max(1, space - len(rows)), view.hosts, lambda host: (-host.bytes, host.host))
    partitions = table(_PARTITIONS, [_partition(*row) for row in rows], left=(0, 7))
    return Group(*lines, "", partitions, "", table(_HOSTS, list(map(_host, hosts)), left=(0, 4)))


def _summary(view: TopView) -> Iterator[Text]:
    status = view.status
    silent = sum(host.silent >= _SILENT for host in view.hosts)
    lines_out = sum(one.lines_out or 0.0 for one in view.partitions)
    bytes_out = sum(one.bytes_out or 0.0 for one in view.partitions)
    lines_in = f"{view.lines_in:,.0f} lines/s {_speed(view.bytes_in)}"
    yield plain(f"{status.server}  nats-server {status.version}  {status.now[:19]}Z", "bold")
    yield plain(f"in {lines_in}  out {lines_out:,.0f} lines/s {_speed(bytes_out)}")
    held = f"held {status.messages} messages, {format_size(status.bytes)}"
    yield plain(f"{held}; behind {status.behind} messages")
    yield plain(f"hosts {len(view.hosts)}, {silent} silent")
    if view.trouble:
        yield plain(f"NO ANSWER: {view.trouble}", "bold red")


def _speed(size: float | None) -> str:
    return "-" if size is None else f"{format_size(round(size))}/s"


def _partition(one: PartitionStatus, rates: PartitionRates) -> tuple[str, ...]:
    return (
        f"p{one.partition}",
        f"{rates.lines_in:,.0f}",
        _speed(rates.bytes_in),
        "-" if rates.lines_out is None else f"{rates.lines_out:,.0f}",
        _speed(rates.bytes_out),
        "-" if one.behind is None else str(one.behind),
        "-" if not one.behind_seconds else short_duration(one.behind_seconds),
        "UNREADABLE" if one.error else one.owner or "nobody yet",
    )


def _host(host: HostRates) -> tuple[str, ...]:
    return (
        host.host,
        f"{host.lines:,.0f}",
        _speed(host.bytes),
        short_duration(host.silent),
        "SILENT" if host.silent >= _SILENT else "",
    )
