"""Completes the snapshots of hosts with what the headers of their messages say, before these messages go.

A shipper that starts goes by its snapshot and by the headers behind it. A snapshot is up to a minute old, and that of a
shipper that was killed stays so: without this, the lines of that minute would be shipped again.
The same is done here as by a shipper that starts, and written by compare-and-set. Whoever dies here has lost nothing:
the snapshot is the old one or the completed one, and the messages are still there.
"""

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass

from broker.client import bucket
from broker.client.connection import Connection, Rejected
from broker.inspect.reader import LAST_PER_SUBJECT, MessageReader, at_sequence
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from broker.wire.subjects import host_filter

__all__ = ["complete_snapshots"]

_AT_ONCE = 200  # snapshots that are read, and completed by one reader
_TRIES = 3
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Snapshot:
    """The snapshot of a host: its positions, and its revision, 0 where there is none."""

    positions: Positions
    revision: int

    def covers(self, stream: str) -> int:
        """Return the last sequence of a stream that it covers, 0 for none."""
        covered = self.positions.covered.get(stream)
        return covered.sequence if covered else 0


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Return once the snapshots cover all messages of shippers below sequence `until`; raises `Rejected`, `ConnectionLost`.

    A snapshot that is written each time before it can be completed stays as its host wrote it: such a host must not keep
    the streams of all hosts full.
    """
    last = int((await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
    hosts: dict[str, int] = {}
    reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
    async with aclosing(reader.read_all(last)) as messages:
        async for one in messages:
            if one.origin and one.subject:
                hosts[one.host] = max(one.sequence, hosts.get(one.host, 0))
    for _ in range(_TRIES):
        names = sorted(hosts)
        again = [
            await _complete(
                connection, stream, {name: hosts[name] for name in names[n : n + _AT_ONCE]}, until
            )
            for n in range(0, len(names), _AT_ONCE)
        ]
        hosts = {host: hosts[host] for part in again for host in part}
    for host in hosts:
        logger.warning("the snapshot of %s is written again and again: not completed", host)


async def _complete(
    connection: Connection, stream: str, hosts: dict[str, int], until: int
) -> list[str]:
    """Complete the snapshots of some hosts, given by their last sequences; return those that were written meanwhile."""
    read = await asyncio.gather(*(_read(connection, stream, host) for host in hosts))
    found = dict(zip(hosts, read, strict=True))
    behind = {
        host: one for host, one in found.items() if one.covers(stream) < min(hosts[host], until - 1)
    }
    if not behind:
        return []
    start = at_sequence(min(one.covers(stream) for one in behind.values()) + 1)
    filters = [host_filter(host) for host in behind]
    reader = MessageReader(connection, stream, start, filters, headers_only=True)
    changed: set[str] = set()
    async with aclosing(reader.read_all(until - 1)) as messages:
        async for message in messages:
            snapshot = behind.get(message.host)
            if snapshot and message.origin and message.sequence > snapshot.covers(stream):
                snapshot.positions = snapshot.positions.advance(
                    [message.origin], message.sequence, stream
                )
                changed.add(message.host)
    written = await asyncio.gather(*(_write(connection, host, behind[host]) for host in changed))
    return [host for host, is_done in zip(changed, written, strict=True) if not is_done]


async def _read(connection: Connection, stream: str, host: str) -> _Snapshot:
    entry = await bucket.read(connection, POSITIONS_BUCKET, positions_key(host))
    try:
        positions = Positions.decode(entry.value) if entry else Positions()
    except PositionsUnreadable:
        positions = Positions()
    return _Snapshot(positions, entry.revision if entry else 0)


async def _write(connection: Connection, host: str, snapshot: _Snapshot) -> bool:
    """Write a completed snapshot; return whether nobody wrote it meanwhile."""
    key, value = positions_key(host), snapshot.positions.encode()
    try:
        await bucket.write(connection, POSITIONS_BUCKET, key, value, snapshot.revision)
    except bucket.Conflict:
        return False
    except Rejected as error:  # too large, as it is for the shipper itself
        logger.warning("cannot complete the snapshot of %s: %s", host, error)
    return True
