"""`logbroker top`: rates by partition and by host, from one view to the next."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from typing import Any

from rich.console import Group

from broker.inspect.collect import attempt, collect_brief_status
from broker.inspect.message import read_facts
from broker.inspect.reader import MessageReader, follow
from broker.inspect.status import PARTITION_HEAD, BrokerStatus, format_partition
from nats_logship.app.table import plain, table
from nats_logship.app.text import format_count
from nats_logship.app.units import format_size
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.stream_message import StreamMessage

_PATIENCE = 5.0  # seconds for the broker's answers
_MOST_ROWS = 15  # of partitions, and of hosts
_PARTITIONS = (*PARTITION_HEAD, "bytes/s in", "lines/s in", "lines/s out")
_LESS = "epoch", "offset", "committed", "owner"  # on a narrow terminal
_HOSTS = ("host", "bytes/s in", "lines/s in")


@dataclass(slots=True)
class Rates:
    """What arrived and what was received, per second.

    In: messages (a shipper's rounds), lines, and bytes as stored. Out: lines and bytes that a
    receiver committed.
    """

    rounds: float = 0.0
    lines: float = 0.0
    bytes: float = 0.0
    lines_out: float = 0.0
    bytes_out: float = 0.0

    def row(self) -> tuple[str, str]:
        """Return the cells of a table for what arrived."""
        return format_size(round(self.bytes)), f"{self.lines:,.0f}"


@dataclass(slots=True)
class TopView:
    """The rates of an interval that ended at `status`; before `finish`, counts since `status`.

    `trouble` is the reason if the broker did not answer, so that `status` is an old one.
    """

    status: BrokerStatus
    partitions: dict[int, Rates] = field(default_factory=dict)
    hosts: dict[str, Rates] = field(default_factory=dict)
    trouble: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain values; the keys are the field names, and stay."""
        return asdict(self) | {"status": self.status.document()}

    def add(self, message: StreamMessage) -> None:
        """Count a message, of which only headers were requested.

        One that a receiver would quarantine counts bytes, no lines, no host.
        """
        facts = read_facts(message)
        if facts.subject is None:
            return
        counts = [self.partitions.setdefault(facts.subject.partition, Rates())]
        if not facts.trouble:
            counts.append(self.hosts.setdefault(facts.subject.host, Rates()))
        for one in counts:
            one.rounds += 1
            one.bytes += message.left_out
            one.lines += 0 if facts.trouble else facts.line_count

    def finish(self, status: BrokerStatus, seconds: float) -> None:
        """Turn the counts of these seconds into rates, with what receivers committed meanwhile."""
        for old, new in zip(self.status.partitions, status.partitions, strict=False):
            # a total becomes less when another receiver owns the partition, or an offset was moved
            rates = self.partitions.setdefault(new.partition, Rates())
            rates.lines_out = max(0, (new.lines or 0) - (old.lines or 0)) / seconds
            rates.bytes_out = max(0, (new.bytes or 0) - (old.bytes or 0)) / seconds
        for one in (*self.partitions.values(), *self.hosts.values()):
            one.rounds /= seconds
            one.lines /= seconds
            one.bytes /= seconds
        self.status = status


async def watch(connection: Connection, interval: float) -> AsyncGenerator[TopView, None]:
    """Yield a view every `interval` seconds, the first one after an interval.

    Raises what the first status raises. If the broker is away later, the views say so.
    """
    clock = asyncio.get_running_loop().time
    began = clock()
    view = TopView(await retry_until_answered(connection, collect_brief_status, ELECTION))
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
            asked = collect_brief_status(connection)
            found, view.trouble = await attempt(connection, asked, _PATIENCE)
            status = found or view.status
            now = clock()
            view.finish(status, now - began)
            done, view, began = view, TopView(status), now
            yield done
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        for reader in readers:
            await reader.close()


def draw(view: TopView) -> Group:
    """Return a view for rich: the partitions that are furthest behind, and the busiest hosts."""
    status = view.status
    rows = nsmallest(
        _MOST_ROWS, status.partitions, lambda p: (-(p.behind_seconds or 0), p.partition)
    )
    rates = [view.partitions.get(one.partition, Rates()) for one in rows]
    partitions = [
        (*format_partition(one), *rate.row(), f"{rate.lines_out:,.0f}")
        for one, rate in zip(rows, rates, strict=True)
    ]
    busiest = nsmallest(_MOST_ROWS, view.hosts.items(), lambda host: (-host[1].bytes, host[0]))
    messages = format_count(status.messages, "message")
    rounds = sum(one.rounds for one in view.partitions.values())
    facts = (messages, f"{status.behind} behind", f"{rounds:,.0f} rounds/s", status.interval_text)
    head = f"{status.server}  {status.now[:19]}Z  {', '.join(filter(None, facts))}"
    trouble = [plain(f"NO ANSWER: {view.trouble}", "bold red")] if view.trouble else []
    hosts = table(_HOSTS, [(name, *rate.row()) for name, rate in busiest])
    return Group(
        plain(head, "bold"), *trouble, "", table(_PARTITIONS, partitions, less=_LESS), "", hosts
    )
