"""`logbroker top`: what moves at a broker, rates by partition and host from one view to the next. Changes nothing."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from typing import Any

from rich.console import Group

from broker.inspect.collect import attempt, collect_brief_status
from broker.inspect.message import StoredMessage
from broker.inspect.reader import MessageReader, follow
from broker.inspect.status import BrokerStatus
from broker.inspect.status_table import PARTITION_HEAD, format_partition
from nats_logship.app.table import plain, table
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.stream_reader import at_sequence

_PATIENCE = 5.0  # seconds for the broker's answers
_ROWS = 15  # of partitions, and of hosts
_PARTITIONS = (*PARTITION_HEAD, "in/s", "lines/s in", "lines/s out")
_HOSTS = ("host", "in/s", "lines/s")


@dataclass(slots=True)
class Rates:
    """What came in a second: messages (a shipper's rounds), lines, and bytes as stored; and what a receiver committed."""

    rounds: float = 0.0
    lines: float = 0.0
    bytes: float = 0.0
    lines_out: float = 0.0
    bytes_out: float = 0.0

    def row(self) -> tuple[str, str]:
        """Return the cells of a table for what came in."""
        return format_size(round(self.bytes)), f"{self.lines:,.0f}"


@dataclass(slots=True)
class TopView:
    """What came in since `status`; once rated, rates up to `status`, and in `trouble` why that may be old."""

    status: BrokerStatus
    partitions: dict[int, Rates] = field(default_factory=dict)
    hosts: dict[str, Rates] = field(default_factory=dict)
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"status": self.status.document()}

    def add(self, message: StoredMessage) -> None:
        """Count a message; one that a receiver would quarantine has bytes, but no lines and no host."""
        if message.subject is None:
            return
        counts = [self.partitions.setdefault(message.subject.partition, Rates())]
        if not message.trouble:
            counts.append(self.hosts.setdefault(message.host, Rates()))
        for one in counts:
            one.rounds += 1
            one.bytes += message.size
            one.lines += 0 if message.trouble else message.line_count

    def rate(self, status: BrokerStatus, seconds: float) -> None:
        """Make rates of what was format_count, and of what receivers committed up to this status."""
        for old, new in zip(self.status.partitions, status.partitions, strict=False):
            # a total that falls is another receiver's, or one that a person has moved
            rates = self.partitions.setdefault(new.partition, Rates())
            rates.lines_out = max(0, (new.lines or 0) - (old.lines or 0)) / seconds
            rates.bytes_out = max(0, (new.bytes or 0) - (old.bytes or 0)) / seconds
        for one in (*self.partitions.values(), *self.hosts.values()):
            one.rounds, one.lines, one.bytes = (
                count / seconds for count in (one.rounds, one.lines, one.bytes)
            )
        self.status = status


async def watch(connection: Connection, interval: float) -> AsyncGenerator[TopView, None]:
    """Yield a view every `interval` seconds, the first one after one; raises what the first look raises.

    A broker that goes away later is waited for, with views that say so.
    """
    clock = asyncio.get_running_loop().time
    began, view = (
        clock(),
        TopView(await retry_until_answered(connection, collect_brief_status, ELECTION)),
    )
    readers = [
        MessageReader(connection, one.name, at_sequence(one.last_sequence + 1), headers_only=True)
        for one in view.status.streams
    ]

    async def count() -> None:
        async for some in follow(readers):
            for message in some:
                view.add(message)

    counting = asyncio.ensure_future(count())
    try:
        while True:
            await asyncio.sleep(interval)
            if counting.done():
                counting.result()
            found, view.trouble = await attempt(
                connection, collect_brief_status(connection), _PATIENCE
            )
            status = found or view.status
            now = clock()
            view.rate(status, now - began)
            done, view, began = view, TopView(status), now
            yield done
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        for reader in readers:
            await reader.close()


def draw(view: TopView) -> Group:
    """Return a view as rich draws it: the partitions that are behind by the longest time, and the busiest hosts."""
    status = view.status
    rows = nsmallest(
        _ROWS, status.partitions, lambda one: (-(one.behind_seconds or 0), one.partition)
    )
    rates = [view.partitions.get(one.partition, Rates()) for one in rows]
    partitions = [
        (*format_partition(one), *rate.row(), f"{rate.lines_out:,.0f}")
        for one, rate in zip(rows, rates, strict=True)
    ]
    busiest = nsmallest(_ROWS, view.hosts.items(), lambda host: (-host[1].bytes, host[0]))
    head = (
        f"{status.server}  {status.now[:19]}Z  {format_count(status.messages, 'message')}, "
        f"{status.behind} behind"
    )
    trouble = [plain(f"NO ANSWER: {view.trouble}", "bold red")] if view.trouble else []
    hosts = table(_HOSTS, [(name, *rate.row()) for name, rate in busiest])
    return Group(plain(head, "bold"), *trouble, "", table(_PARTITIONS, partitions), "", hosts)
