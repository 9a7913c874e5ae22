"""`logbroker top`: watches what moves at a broker, and draws it. Changes nothing."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from heapq import nsmallest

from rich.console import Group
from rich.text import Text

from broker.app.exits import OperatorError
from broker.app.table import plain, table
from broker.app.units import format_size
from broker.client.connection import ELECTION, Connection, ConnectionLost, Rejected, until_answered
from broker.inspect.ask import brief_status
from broker.inspect.reader import LAST_PER_SUBJECT, StreamReader, at_sequence
from broker.inspect.status import Status
from broker.inspect.status_table import short_duration
from broker.inspect.traffic import HostFlow, PartitionFlow, Traffic, View

__all__ = ["By", "Layout", "draw", "watch"]

_TOO_MANY = 20_000  # messages behind; whoever watches wants to see the present
_PATIENCE = 5.0  # seconds for the broker's answers
_LEAST_HOSTS = 5  # rows that partitions leave them
_PARTITIONS = ("part", "lines/s in", "in", "lines/s out", "out", "behind", "oldest", "receiver")
_HOSTS = ("host", "lines/s", "bytes/s", "silent", "delay", "")


async def watch(connection: Connection, interval: float) -> AsyncGenerator[View, None]:
    """Yield a view every `interval` seconds, the first one after one; raises what the first look raises.

    A broker that goes away later is waited for, with views that say so.
    """
    clock = asyncio.get_running_loop().time
    traffic = Traffic(clock())

    async def begin(connection: Connection) -> Status:
        status = await brief_status(connection)
        for stream in status.streams:
            reader = StreamReader(connection, stream.name, LAST_PER_SUBJECT, headers_only=True)
            async for delivery, message in reader.read_all(stream.last_sequence):
                traffic.known(delivery.stored_at, message)
        return status

    status = await until_answered(connection, begin, ELECTION)
    traffic.look(status, clock())
    reading = asyncio.gather(
        *(_count(connection, traffic, one.name, one.last_sequence + 1) for one in status.streams)
    )
    try:
        while True:
            await asyncio.sleep(interval)
            if reading.done():
                reading.result()
            seen, trouble = await _look(connection)
            if seen is not None:
                status = seen
                traffic.look(status, clock())
            yield traffic.view(status, clock(), trouble)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _look(connection: Connection) -> tuple[Status | None, str]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await brief_status(connection), ""
    except TimeoutError:
        return None, connection.away or f"no answer within {_PATIENCE:g} s"
    except (ConnectionLost, Rejected, OperatorError) as error:
        return None, str(error)


async def _count(connection: Connection, traffic: Traffic, stream: str, first: int) -> None:
    """Count what comes in; where more comes than can be read, the oldest of it is skipped."""
    clock = asyncio.get_running_loop().time
    while True:
        reader = StreamReader(connection, stream, at_sequence(first), headers_only=True)
        try:
            while (reader.pending or 0) < _TOO_MANY:
                for delivery, message in await reader.follow():
                    traffic.arrived(delivery.stored_at, message, clock())
        finally:
            await reader.close()
        traffic.skipped += reader.pending or 0
        info = await until_answered(connection, lambda c: c.api(f"STREAM.INFO.{stream}"), math.inf)
        first = info["state"]["last_seq"] + 1


class By(Enum):
    """By what hosts are sorted; the values are the keys that say so."""

    BYTES = "b"
    LINES = "l"
    NAME = "n"
    SILENCE = "s"
    DELAY = "d"


_ORDERS: dict[By, Callable[[HostFlow], tuple[float, str]]] = {
    By.BYTES: lambda host: (-host.bytes, host.host),
    By.LINES: lambda host: (-host.lines, host.host),
    By.NAME: lambda host: (0.0, host.host),
    By.SILENCE: lambda host: (-host.silent, host.host),
    By.DELAY: lambda host: (-(host.delay or 0.0), host.host),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How a view is drawn: rows of the screen, the order of hosts, and after how many seconds a host is silent, or slow."""

    height: int = 60
    by: By = By.BYTES
    silent: float = 300.0
    slow: float = 10.0


def draw(view: View, layout: Layout) -> Group:
    """Return a view as rich draws it, with as many partitions and hosts as fit."""
    lines = list(_summary(view, layout))
    room = max(2, layout.height - len(lines) - 4)
    # where not all partitions fit, those that are behind by the longest time do
    most = max(1, room - min(len(view.hosts), _LEAST_HOSTS))
    partitions = nsmallest(most, view.partitions, lambda p: (-(p.behind_seconds or 0), p.partition))
    hosts = nsmallest(max(1, room - len(partitions)), view.hosts, _ORDERS[layout.by])
    return Group(
        *lines,
        "",
        table(_PARTITIONS, list(map(_partition, partitions)), left=(0, len(_PARTITIONS) - 1)),
        "",
        table(_HOSTS, [_host(host, layout) for host in hosts], left=(0, len(_HOSTS) - 1)),
    )


def _summary(view: View, layout: Layout) -> Iterator[Text]:
    status = view.status
    silent = sum(host.silent >= layout.silent for host in view.hosts)
    slow = sum((host.delay or 0.0) >= layout.slow for host in view.hosts)
    lines_out = sum(one.lines_out or 0.0 for one in view.partitions)
    bytes_out = sum(one.bytes_out or 0.0 for one in view.partitions)
    yield plain(f"{status.server}  nats-server {status.version}  {status.now[:19]}Z", "bold")
    yield plain(f"in {_rate(view.lines_in, view.bytes_in)}  out {_rate(lines_out, bytes_out)}")
    yield plain(f"behind {status.behind} messages")
    yield plain(f"held {status.messages} messages, {format_size(status.bytes)}{_fill(view)}")
    yield plain(f"hosts {len(view.hosts)}, {silent} silent and {slow} slow")
    if view.skipped:
        yield plain(f"more comes in than can be read: {view.skipped} messages are in no rate")
    if view.trouble:
        yield plain(f"NO ANSWER: {view.trouble}", "bold red")


def _fill(view: View) -> str:
    if view.used is None:
        return ""
    full = "" if view.full_in is None else f", full in {short_duration(view.full_in)}"
    return f", {view.used:.0%} of what the streams may hold{full}"


def _rate(lines: float, size: float) -> str:
    return f"{lines:,.0f} lines/s {_speed(size)}"


def _speed(size: float | None) -> str:
    return "-" if size is None else f"{format_size(round(size))}/s"


def _partition(one: PartitionFlow) -> tuple[str, ...]:
    return (
        f"p{one.partition}",
        f"{one.lines_in:,.0f}",
        _speed(one.bytes_in),
        "-" if one.lines_out is None else f"{one.lines_out:,.0f}",
        _speed(one.bytes_out),
        "-" if one.behind is None else str(one.behind),
        "-" if not one.behind_seconds else short_duration(one.behind_seconds),
        "UNREADABLE" if one.error else one.owner or "nobody yet",
    )


def _host(host: HostFlow, layout: Layout) -> tuple[str, ...]:
    marks = (
        *(["SILENT"] if host.silent >= layout.silent else []),
        *(["SLOW"] if (host.delay or 0.0) >= layout.slow else []),
    )
    return (
        host.host,
        f"{host.lines:,.0f}",
        _speed(host.bytes),
        short_duration(host.silent),
        "-" if host.delay is None else f"{host.delay:.1f}s",
        " ".join(marks),
    )
