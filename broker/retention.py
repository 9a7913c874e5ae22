"""Purges what a person or the retention worker has chosen; tells before what that means.

Killed in the middle, some of it is gone and some is not: the same command again takes the rest. How far a stream is received
leaders answer alone: a replica that lags may not know yet that a person has moved an offset back.

Before messages go, the snapshots of their hosts are completed with what their headers say: that of a shipper that was killed
stays up to a minute old, and without its headers the lines of that minute would be shipped again. Snapshots are written by
compare-and-set: whoever dies here leaves the old one or the completed one, and the messages are still there.

The worker of a stream purges from the high-water mark on, down to the low-water mark, oldest first and by sequence: that costs
nats-server next to nothing, while a purge of a subject reads the whole stream. The first message that a receiver still needs
ends it, and the stream's discard policy decides: hosts wait (new), or the oldest lines go (old). In a cluster only the broker
beside the stream's leader acts.
"""

import asyncio
import logging
import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.inspect.ask import counts_by_subject, known_layout
from broker.inspect.message import subject_of
from broker.inspect.reader import (
    MessageReader,
    find_message,
    find_sequence_at,
)
from broker.provision.apply import list_consumers
from broker.report import SpaceReport
from broker.server.context import ServerContext
from broker.server.resolve import compute_reserve
from nats_logship.app.exits import OperatorError
from nats_logship.app.selection import LineSelection
from nats_logship.app.timestamps import Moment
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import LAST_PER_SUBJECT, at_sequence
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.positions import Positions, UnreadablePositions
from nats_logship.wire.restored import is_being_restored
from nats_logship.wire.streams import (
    MAX_PAYLOAD,
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    offset_key,
    positions_key,
)
from nats_logship.wire.subjects import host_filter, partition_filter

_PATIENCE = 600.0  # seconds; nats-server reads the whole stream to purge a subject
_OURS = re.compile(r"receiver-p\d+|shipper-.+|wake-p\d+-.+")
_ROUNDED = timedelta(milliseconds=5)  # offsets hold times to the millisecond
_AT_ONCE = 200  # snapshots that are read, and completed by one reader
_TRIES = 3
_OFTEN, _SELDOM = 0.1, 0.5  # seconds between looks, the first while something is purged
_SHARE = 3  # how many times as long as a purge the pause behind it is
_WORKER_PATIENCE = 60.0  # seconds for a purge of the worker
_OK, _PURGING = "ok", "purging"
_HIGH, _LOW = 90, 80  # percent of a limit: from when on, and down to which, messages are purged
_ROUND_BYTES = 2 * MAX_PAYLOAD  # what a host or two may publish between two looks
_FULL = {"new": "hosts wait", "old": "oldest lines are dropped"}
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
    for consumer in await list_consumers(connection, stream):
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
    apart = timedelta(microseconds=(last.stored_at - offset.stored_at) // 1000)
    return offset.next if abs(apart) < _ROUNDED else 0


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Return once the snapshots cover all messages of shippers below sequence `until`; raises `Rejected`, `ConnectionLost`."""
    info = await connection.api(f"STREAM.INFO.{stream}")
    if info["config"].get("mirror"):
        return  # the snapshots there are another site's
    hosts: dict[str, int] = {}
    reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
    async with aclosing(reader.read_all()) as messages:
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
    except UnreadablePositions:
        positions = Positions()
    return positions, entry.revision if entry else 0


async def _write(connection: Connection, host: str, positions: Positions, revision: int) -> bool:
    """Write a completed snapshot; return whether nobody wrote it meanwhile; raises `Rejected` where the server cannot just now."""
    try:
        value = positions.encode()
        await bucket.write(connection, POSITIONS_BUCKET, positions_key(host), value, revision)
    except bucket.Conflict:
        return False
    except Rejected as error:
        if error.is_server_failure:
            raise  # nothing may go yet
        # too large, as it is for the shipper itself
        logger.warning("cannot complete the snapshot of %s: %s", host, error)
    return True


@dataclass(frozen=True, slots=True)
class Purge:
    """What would go of the stream made at `created`: `messages` below `until`, on subjects that match one of `filters`, none meaning all.

    `needed_by` are those who have not received all that is below `until` of these partitions.
    """

    stream: str
    created: str
    until: int
    filters: tuple[str, ...] = ()
    messages: int = 0
    needed_by: tuple[str, ...] = ()


async def choose(
    connection: Connection,
    hosts: tuple[str, ...] = (),
    partitions: tuple[int, ...] = (),
    before: Moment | None = None,
) -> list[Purge]:
    """Return what would go: of these hosts (globs) and partitions, none meaning all, what is below a sequence or older than a time.

    What comes from now on is not among it. Raises `Rejected`, `ConnectionLost`.
    """
    layout = await require_layout(connection)
    found = []
    for stream in layout.names:
        info = await connection.api(f"STREAM.INFO.{stream}")
        chosen = [
            n for n in layout.partitions_in(info["config"]) if not partitions or n in partitions
        ]
        filters = tuple(partition_filter(n) for n in chosen if partitions)
        if hosts:
            wanted, names = LineSelection(hosts), await counts_by_subject(connection, [stream])
            known = {name: subject_of(name) for name in sorted(names)}
            filters = tuple(
                name
                for name, one in known.items()
                if one and one.partition in chosen and wanted.wants_host(one.host)
            )
        if filters or not (hosts or partitions):
            until = int(info["state"]["last_seq"]) + 1
            if before is not None:
                until = await find_sequence_at(connection, stream, before, until)
            wants = await needed(connection, info, chosen)
            needed_by = tuple(sorted(who for who, first in wants.items() if first < until))
            messages = await _count(connection, stream, filters, until)
            found.append(Purge(stream, info["created"], until, filters, messages, needed_by))
    return [one for one in found if one.messages]


async def _count(connection: Connection, stream: str, filters: Sequence[str], until: int) -> int:
    """Return how many messages there are below a sequence, on subjects that match one of `filters`, none meaning all."""
    readers = (MessageReader(connection, stream, at_sequence(one), filters) for one in (1, until))
    there, later = [await reader.count() for reader in readers]
    return there - later


async def purge(
    connection: Connection, chosen: Sequence[Purge], patience: float = _PATIENCE
) -> int:
    """Purge what was chosen, its hosts' snapshots completed, and return how many messages went; raises `OperatorError`, `Rejected`, `ConnectionLost`."""
    gone = 0
    for one in chosen:
        await complete_snapshots(connection, one.stream, one.until)
        if (await connection.api(f"STREAM.INFO.{one.stream}"))["created"] != one.created:
            raise OperatorError(
                f"stream {one.stream} was made anew meanwhile; nothing was removed of it"
            )
        for subject in one.filters or ("",):  # without a filter nothing is searched
            body = {"seq": one.until} | ({"filter": subject} if subject else {})
            answer = await connection.api(f"STREAM.PURGE.{one.stream}", body, patience=patience)
            gone += int(answer["purged"])
    return gone


def excess(info: Mapping[str, Any], missing: int = 0) -> float:
    """Return the share of a stream that has to go, from 0 to 1: 0 below the high-water mark, else down to the low-water mark.

    `info` is the answer to STREAM.INFO; `missing` is how many bytes the disk has less than it should. Below a small limit the mark
    leaves space for a round: a round that is refused whole would wait for ever.
    """
    held, limit = int(info["state"]["bytes"]), int(info["config"].get("max_bytes", -1))
    high = min(limit * _HIGH // 100, limit - min(_ROUND_BYTES, limit // 2))
    over = held - high * _LOW // _HIGH if limit > 0 and held >= high else 0
    return min(max(missing, over, 0) / held, 1.0) if held else 0.0


class StreamRetention:
    """The worker of one stream; `space` is what it reports."""

    def __init__(self, context: ServerContext, stream: str) -> None:
        """Do nothing yet."""
        self.space = SpaceReport(state=_OK)
        self._context, self._connection = context, context.connection
        self._stream = stream

    async def run(self) -> None:
        """Look again and again until cancelled; a broker that is away is no error."""
        failures = 0
        while True:
            pause = _SELDOM
            try:
                pause = await self._look()
                failures = 0
            except (ConnectionLost, Rejected, OperatorError, OSError) as error:
                failures += 1
                # once is no news: so it is while nats-server reads its accounts again, and when it ends
                if failures == 2:
                    logger.warning("retention cannot look at %s: %s", self._stream, error)
            await asyncio.sleep(pause)

    async def _look(self) -> float:
        """Look once, and return the seconds until the next look."""
        began = asyncio.get_running_loop().time()
        info = await self._connection.api(f"STREAM.INFO.{self._stream}")
        cluster = info.get("cluster") or {}
        # a server on its own has no name of a cluster, and is the leader of all that it holds
        leads = not cluster.get("name") or cluster.get("leader") == self._context.settings.name
        share = excess(info, self._missing())
        if not leads or is_being_restored(info["config"]) or not share:
            self._enter(_OK)
            return _SELDOM
        await self._purge(info, share)
        return max(_OFTEN, _SHARE * (asyncio.get_running_loop().time() - began))

    def _missing(self) -> int:
        """Return how many bytes the disk has less than should stay free, once half of that is used up."""
        disk = shutil.disk_usage(self._context.folder)
        reserve = compute_reserve(self._context.settings, disk.total)
        return reserve - disk.free if disk.free < reserve // 2 else 0

    async def _purge(self, info: Mapping[str, Any], share: float) -> None:
        """Purge about a share of the stream, as far as receivers have it."""
        state, stream = info["state"], self._stream
        first, end = int(state["first_seq"]), int(state["last_seq"]) + 1
        # where no entry says how many partitions there are, the subjects of the stream do
        layout = replace(
            await known_layout(self._connection), streams=self._context.conf.topology.stream_count
        )
        wants = await needed(self._connection, info, layout.partitions_in(info["config"]))
        until = min([first + math.ceil(share * (end - first)), *wants.values()])
        if until > first:
            chosen = Purge(stream, info["created"], until)
            self.space.purged_messages += await purge(self._connection, [chosen], _WORKER_PATIENCE)
            self._enter(_PURGING)
        else:
            oldest = sorted(who for who, sequence in wants.items() if sequence <= first)
            self._enter(_FULL[info["config"].get("discard", "old")], tuple(oldest))

    def _enter(self, state: str, needed_by: tuple[str, ...] = ()) -> None:
        """Note the stream's state, and since when it is so; log where that is news."""
        space = self.space
        if (space.state, space.needed_by) == (state, needed_by):
            return
        if state in _FULL.values():
            logger.warning(
                "stream %s is full, and %s: %s still needs its oldest message; start that "
                "receiver, or give the stream more space (--max-bytes)",
                self._stream,
                state,
                " and ".join(needed_by) or "nobody",
            )
        else:
            logger.info("retention of stream %s: %s", self._stream, state)
        if space.state != state:
            now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
            space.since = None if state == _OK else now.isoformat("T", "seconds")
        space.state, space.needed_by = state, needed_by


async def retain(context: ServerContext) -> None:
    """Keep space in the streams of a broker that is ready, until cancelled."""
    workers = {one: StreamRetention(context, one) for one in context.conf.topology.names}
    context.retention = {name: one.space for name, one in workers.items()}
    async with asyncio.TaskGroup() as group:
        for one in workers.values():
            group.create_task(one.run())
