"""Completes the snapshots of hosts with what the headers of their messages say, before these messages go.

A shipper that starts goes by its snapshot and by the headers behind it. A snapshot is up to a minute old, and that of a
shipper that was killed stays so: without this, the lines of that minute would be shipped again.
The same is done here as by a shipper that starts, and written by compare-and-set. Whoever dies here has lost nothing:
the snapshot is the old one or the completed one, and the messages are still there.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.retention.headers import LAST_OF_EACH, read_headers
from broker.wire.message import MalformedMessage, Origin, decode_origin
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, host_filter

__all__ = ["complete_snapshots"]

_AT_ONCE = 32  # snapshots that are read or written
_HOSTS = 200  # whose headers are read together
_TRIES = 3
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The snapshot of a host: its positions and its revision, 0 where there is none."""

    host: str
    positions: Positions
    revision: int

    def covers(self, stream: str) -> int:
        """Return the last sequence of a stream that it covers, 0 for none."""
        covered = self.positions.covered(stream)
        return covered.sequence if covered else 0


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Return once the snapshots cover all messages of shippers below sequence `until`; raises `Rejected`, `ConnectionLost`.

    A snapshot that is written each time before it can be completed stays as its host wrote it.
    """
    hosts = await _hosts(connection, stream)
    for _ in range(_TRIES):
        gate = asyncio.Semaphore(_AT_ONCE)
        found = await asyncio.gather(*(_read(connection, gate, stream, host) for host in hosts))
        behind = [one for one in found if one.covers(stream) < min(hosts[one.host], until - 1)]
        behind.sort(key=lambda one: one.covers(stream))
        again: set[str] = set()
        for begin in range(0, len(behind), _HOSTS):
            part = behind[begin : begin + _HOSTS]
            completed = await _completed(connection, stream, part, until)
            writes = (_write(connection, gate, one) for one in completed)
            again |= {host for host in await asyncio.gather(*writes) if host}
        if not again:
            return
        hosts = {host: last for host, last in hosts.items() if host in again}
    # a host that writes its snapshot without a pause must not keep the streams of all hosts full
    logger.warning(
        "snapshots of %d hosts are written again and again, and were not completed: %s",
        *(len(hosts), ", ".join(sorted(hosts)[:10])),
    )


async def _hosts(connection: Connection, stream: str) -> dict[str, int]:
    """Return the hosts whose last message is a shipper's, with the sequence of that message."""
    found: dict[str, int] = {}
    async with aclosing(read_headers(connection, stream, LAST_OF_EACH, [">"])) as heads:
        async for head in heads:
            if _origin(head.headers) and (host := _host(head.subject)):
                found[host] = max(head.sequence, found.get(host, 0))
    return found


async def _read(
    connection: Connection, gate: asyncio.Semaphore, stream: str, host: str
) -> _Snapshot:
    async with gate:
        entry = await bucket.read(connection, POSITIONS_BUCKET, positions_key(host))
    try:
        positions = Positions.decode(entry.value) if entry else Positions(stream=stream)
    except PositionsUnreadable:
        positions = Positions(stream=stream)
    return _Snapshot(host, positions, entry.revision if entry else 0)


async def _completed(
    connection: Connection, stream: str, snapshots: list[_Snapshot], until: int
) -> list[_Snapshot]:
    """Return those of the snapshots, the oldest first, that cover more by what the headers below `until` say."""
    found: dict[str, _Snapshot] = {}
    known = {one.host: one for one in snapshots}
    start = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": snapshots[0].covers(stream) + 1,
    }
    filters = [host_filter(host) for host in known]
    async with aclosing(read_headers(connection, stream, start, filters)) as heads:
        async for head in heads:
            if head.sequence >= until:
                break
            host, origin = _host(head.subject), _origin(head.headers)
            if host in known and origin and head.sequence > known[host].covers(stream):
                before = found.get(host, known[host])
                positions = before.positions.advance([origin], head.sequence, stream)
                found[host] = replace(before, positions=positions)
    return list(found.values())


async def _write(connection: Connection, gate: asyncio.Semaphore, snapshot: _Snapshot) -> str:
    """Write a completed snapshot; return its host where the shipper wrote one meanwhile, else nothing."""
    key, value = positions_key(snapshot.host), snapshot.positions.encode()
    try:
        async with gate:
            await bucket.write(connection, POSITIONS_BUCKET, key, value, snapshot.revision)
    except bucket.Conflict:
        return snapshot.host
    except Rejected as error:  # too large, as it is for the shipper itself
        logger.warning("cannot complete the snapshot of %s: %s", snapshot.host, error)
    return ""


def _host(subject: str) -> str:
    """Return the host of a subject; empty for what no shipper of ours publishes to."""
    try:
        return Subject.parse(subject).host
    except (InvalidSubject, InvalidHost):
        return ""


def _origin(headers: Mapping[str, str]) -> Origin | None:
    try:
        return decode_origin(headers)
    except MalformedMessage:
        return None
