"""Purges what a person or the retention worker has chosen; tells before what that means.

Killed in the middle, some of it is gone and some is not: the same command again takes the rest. How far a stream is received
leaders answer alone: a replica that lags may not know yet that a person has moved an offset back.

Before messages go, the snapshots of their hosts are completed with what their headers say: that of a shipper that was killed
stays up to a minute old, and without its headers the lines of that minute would be shipped again. Snapshots are written by
compare-and-set: whoever dies here leaves the old one or the completed one, and the messages are still there.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any

from broker.app.exits import OperatorError
from broker.app.selection import LineSelection
from broker.app.units import Moment
from broker.client import bucket
from broker.client.answer import Rejected
from broker.client.config import existing_partitions, require_layout
from broker.client.connection import Connection
from broker.inspect.ask import counts_by_subject
from broker.inspect.message import nanoseconds, subject_of
from broker.inspect.reader import LAST_PER_SUBJECT, MessageReader, at_sequence, find_message
from broker.provision.apply import consumers_of
from broker.wire.offset import Offset, UnreadableOffset
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import (
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    offset_key,
    positions_key,
    stream_of,
)
from broker.wire.subjects import host_filter, partition_filter

_ALL = ">"
_PATIENCE = 600.0  # seconds; nats-server reads the whole stream to purge a subject
_OURS = re.compile(r"receiver-p\d+|shipper-.+|wake-p\d+-.+")
_ROUNDED = timedelta(milliseconds=5)  # offsets hold times to the millisecond
_AT_ONCE = 200  # snapshots that are read, and completed by one reader
_TRIES = 3
logger = logging.getLogger(__name__)


async def needed(
    connection: Connection, info: Mapping[str, Any], partitions: Iterable[int]
) -> dict[str, int]:
    """Return the first sequence that is still needed, by who needs it: `partition 3`, or `consumer audit`; `info` is STREAM.INFO's."""
    stream, gate = info["config"]["name"], asyncio.Semaphore(32)
    found: dict[str, int] = {}

    async def ask(partition: int) -> None:
        async with gate:
            until = await committed_until(connection, info, partition)
            asked = {"seq": max(until, 1), "next_by_subj": partition_filter(partition)}
            if message := await find_message(connection, stream, asked):
                found[f"partition {partition}"] = message.sequence

    await asyncio.gather(*map(ask, partitions))
    for consumer in await consumers_of(connection, stream):
        name, config = consumer["name"], consumer["config"]
        acknowledges = config.get("durable_name") and config.get("ack_policy", "none") != "none"
        is_behind = consumer.get("num_pending") or consumer.get("num_ack_pending")
        # a host could make one that bears a name of ours
        if acknowledges and is_behind and not _OURS.fullmatch(name):
            found[f"consumer {name}"] = int(consumer["ack_floor"]["stream_seq"]) + 1
    return found


async def committed_until(connection: Connection, info: Mapping[str, Any], partition: int) -> int:
    """Return the sequence below which a partition is committed, 0 where its offset cannot tell: one of another stream, or not used yet."""
    key = f"$KV.{OFFSETS_BUCKET}.{offset_key(partition)}"
    entry = await find_message(connection, f"KV_{OFFSETS_BUCKET}", {"last_by_subj": key})
    try:
        offset = Offset.decode(entry.payload) if entry else None
    except UnreadableOffset:
        return 0
    if offset is None or offset.moved_in or not offset.last_time:
        return 0
    if offset.stream_created != info["created"] or offset.next > int(info["state"]["last_seq"]) + 1:
        return 0
    # a stream that lost its end gives numbers again: the last committed message must be the one with that number
    last = await find_message(connection, info["config"]["name"], {"seq": offset.next - 1})
    if last is None:
        return offset.next  # purged, as most that is committed
    apart = timedelta(microseconds=(last.stored_at - nanoseconds(offset.last_time)) // 1000)
    return offset.next if abs(apart) < _ROUNDED else 0


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Return once the snapshots cover all messages of shippers below sequence `until`; raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{stream}")
    if info["config"].get("mirror"):
        return  # the snapshots there are another site's
    hosts: dict[str, int] = {}
    reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
    async with aclosing(reader.read_all(int(info["state"]["last_seq"]))) as messages:
        async for one in messages:
            if one.origin and one.subject:
                hosts[one.host] = min(max(one.sequence, hosts.get(one.host, 0)), until - 1)
    names = sorted(hosts)
    for begin in range(0, len(names), _AT_ONCE):
        left = names[begin : begin + _AT_ONCE]
        for _ in range(_TRIES):
            left = await _complete(connection, stream, {host: hosts[host] for host in left}, until)
        if left:  # such a host must not keep the streams of all hosts full
            logger.warning("snapshots are written again and again, not completed: %s", left)


async def _complete(
    connection: Connection, stream: str, hosts: Mapping[str, int], until: int
) -> list[str]:
    """Complete snapshots up to a sequence for each host; return the hosts whose snapshots were written meanwhile."""
    found = await asyncio.gather(*(_read(connection, host) for host in hosts))
    read = {
        host: one
        for host, one in zip(hosts, found, strict=True)
        if _covered(one[0], stream) < hosts[host]
    }
    if not read:
        return []
    known = {host: positions for host, (positions, _) in read.items()}
    start = at_sequence(min(_covered(one, stream) for one in known.values()) + 1)
    filters = [host_filter(host) for host in known]
    reader = MessageReader(connection, stream, start, filters, headers_only=True)
    async with aclosing(reader.read_all(until - 1)) as messages:
        async for one in messages:
            if one.origin and one.sequence > _covered(known[one.host], stream):
                known[one.host] = known[one.host].advance([one.origin], one.sequence, stream)
    changed = {host: one for host, one in known.items() if one is not read[host][0]}
    writes = (_write(connection, host, one, read[host][1]) for host, one in changed.items())
    written = await asyncio.gather(*writes)
    return [host for host, is_done in zip(changed, written, strict=True) if not is_done]


def _covered(positions: Positions, stream: str) -> int:
    covered = positions.covered.get(stream)
    return covered.sequence if covered else 0


async def _read(connection: Connection, host: str) -> tuple[Positions, int]:
    """Return the snapshot of a host and its revision; an empty one where there is none, or none that can be read."""
    entry = await bucket.read(connection, POSITIONS_BUCKET, positions_key(host))
    try:
        positions = Positions.decode(entry.value) if entry else Positions()
    except PositionsUnreadable:
        positions = Positions()
    return positions, entry.revision if entry else 0


async def _write(connection: Connection, host: str, positions: Positions, revision: int) -> bool:
    """Write a completed snapshot; return whether nobody wrote it meanwhile."""
    try:
        value = positions.encode()
        await bucket.write(connection, POSITIONS_BUCKET, positions_key(host), value, revision)
    except bucket.Conflict:
        return False
    except Rejected as error:  # too large, as it is for the shipper itself
        logger.warning("cannot complete the snapshot of %s: %s", host, error)
    return True


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to go: of these hosts (globs) and partitions, none meaning all, what is below a sequence or older than a time, `before`."""

    hosts: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    before: Moment | None = None


@dataclass(frozen=True, slots=True)
class Purge:
    """What would go of the stream made at `created`: below `until`, of a subject filter; no receiver has `unreceived` of `messages`."""

    stream: str
    created: str
    until: int
    filter: str = _ALL
    messages: int = 0
    unreceived: int = 0


async def choose(connection: Connection, choice: Choice) -> list[Purge]:
    """Return what would go; what comes from now on is not among it. Raises `Rejected`, `ConnectionLost`."""
    layout = await require_layout(connection)
    existing = await existing_partitions(connection, layout)
    found: list[Purge] = []
    for stream in layout.names:
        partitions = [n for n in range(existing) if stream_of(n, layout.streams) == stream]
        found += await _choose(connection, stream, choice, partitions)
    return [one for one in found if one.messages]


async def _choose(
    connection: Connection, stream: str, choice: Choice, partitions: list[int]
) -> list[Purge]:
    info = await connection.api(f"STREAM.INFO.{stream}")
    end = int(info["state"]["last_seq"]) + 1
    if isinstance(choice.before, int):
        end = min(end, choice.before)
    elif choice.before is not None:
        since = choice.before.astimezone(UTC).isoformat().replace("+00:00", "Z")
        first = await find_message(connection, stream, {"start_time": since, "next_by_subj": _ALL})
        end = min(end, first.sequence) if first else end
    wants = await needed(connection, info, partitions)
    found = []
    for chosen, of in await _filters(connection, stream, choice, partitions):
        messages, unreceived = await _count(connection, stream, chosen, 1, end), 0
        for n in of:
            lines, wanted = partition_filter(n) if chosen == _ALL else chosen, f"partition {n}"
            unreceived += await _count(connection, stream, lines, wants.get(wanted, end), end)
        found.append(Purge(stream, info["created"], end, chosen, messages, unreceived))
    return found


async def _filters(
    connection: Connection, stream: str, choice: Choice, partitions: list[int]
) -> list[tuple[str, list[int]]]:
    """Return the subject filters that take in what is chosen of a stream, each with the partitions that it is of."""
    if not (choice.hosts or choice.partitions):
        return [(_ALL, partitions)]
    chosen = [n for n in partitions if not choice.partitions or n in choice.partitions]
    if not choice.hosts:
        return [(partition_filter(n), [n]) for n in chosen]
    wanted = LineSelection(choice.hosts)
    return sorted(
        (name, [subject.partition])
        for name in await counts_by_subject(connection, [stream])
        if (subject := subject_of(name))  # of no host that a glob could mean
        and subject.partition in chosen
        and wanted.wants_host(subject.host)
    )


async def _count(
    connection: Connection, stream: str, subject_filter: str, first: int, until: int
) -> int:
    """Return how many messages there are from a sequence on, below another."""
    counts = []
    for begin in (first, until) if first < until else ():
        config = {
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": max(begin, 1),
            "filter_subject": subject_filter,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 5_000_000_000,
        }
        body = {"stream_name": stream, "config": config}
        made = await connection.api(f"CONSUMER.CREATE.{stream}", body)
        await connection.api(f"CONSUMER.DELETE.{stream}.{made['name']}")
        counts.append(int(made["num_pending"]))
    return counts[0] - counts[1] if counts else 0


async def purge(
    connection: Connection, chosen: Sequence[Purge], patience: float = _PATIENCE
) -> int:
    """Purge what was chosen, its hosts' snapshots completed, and return how many messages went; raises `OperatorError`, `Rejected`, `ConnectionLost`."""
    ends = {
        one.stream: max(each.until for each in chosen if each.stream == one.stream)
        for one in chosen
    }
    for stream, until in ends.items():
        await complete_snapshots(connection, stream, until)
    gone = 0
    for one in chosen:
        if (await connection.api(f"STREAM.INFO.{one.stream}"))["created"] != one.created:
            raise OperatorError(
                f"stream {one.stream} was made anew meanwhile; nothing was removed of it"
            )
        # without a filter nothing is searched
        body = {"seq": one.until} | ({} if one.filter == _ALL else {"filter": one.filter})
        answer = await connection.api(f"STREAM.PURGE.{one.stream}", body, patience=patience)
        gone += int(answer["purged"])
    return gone
