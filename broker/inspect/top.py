"""`logbroker top`: watches what moves at a broker, and draws it. Changes nothing."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
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
from broker.inspect.reader import LAST_PER_SUBJECT, StreamReader, follow
from broker.inspect.status import Status
from broker.inspect.status_table import short_duration
from broker.inspect.traffic import HostFlow, PartitionFlow, Traffic, View

__all__ = ["By", "Layout", "draw", "watch"]

_PATIENCE = 5.0  # seconds for the broker's answers
_LEAST_HOSTS = 5  # rows that partitions leave them
_PARTITIONS = ("part", "lines/s in", "in", "lines/s out", "out", "behind", "oldest", "receiver")
_HOSTS = ("host", "lines/s", "bytes/s", "silent", "delay", "")


async def watch(connection: Connection, interval: float) -> AsyncGenerator[View, None]:
    """Yield a view every `interval` seconds, the first one after one; raises what the first look raises.

    A broker that goes away later is waited for, with views that say so.
    """
    clock = asyncio.get_running_loop().time
    status = await until_answered(connection, brief_status, ELECTION)
    traffic, trouble = Traffic(clock(), status.nanoseconds), ""
    # the last message of each host from before, and then what comes
    readers = [
        StreamReader(connection, one.name, LAST_PER_SUBJECT, headers_only=True)
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
    readers: Sequence[StreamReader], traffic: Traffic, clock: Callable[[], float]
) -> None:
    async for some in follow(readers):
        for message in some:
            traffic.add(message, clock())


async def _look(connection: Connection, before: Status) -> tuple[Status, str]:
    """Return the status; where the broker does not answer the one before, and why."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await brief_status(connection), ""
    except TimeoutError:
        return before, connection.away or f"no answer within {_PATIENCE:g} s"
    except (ConnectionLost, Rejected, OperatorError) as error:
        return before, str(error)


class By(Enum):
    """By what hosts are sorted."""

    BYTES = "bytes"
    LINES = "lines"
    NAME = "name"
    SILENCE = "silence"
    DELAY = "delay"


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
    most = "" if not status.max_bytes else f" of {format_size(status.max_bytes)}"
    yield plain(f"held {status.messages} messages, {format_size(status.bytes)}{most}")
    yield plain(f"hosts {len(view.hosts)}, {silent} silent and {slow} slow")
    if view.trouble:
        yield plain(f"NO ANSWER: {view.trouble}", "bold red")


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
