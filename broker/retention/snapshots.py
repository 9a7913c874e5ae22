"""Complete the snapshots of shippers before a purge, so that none ships lines twice.

A snapshot is up to a minute old. A shipper that was killed completes it from the headers of the
messages that are newer than the snapshot. Once these messages are purged, it would ship their lines
again. So their headers are added to the snapshot first.

If the broker dies here, each snapshot is the old one or the completed one (compare-and-set), and
the messages are still there.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import aclosing

from broker.inspect.message import read_facts
from broker.inspect.reader import MessageReader
from nats_logship.app.units import format_size
from nats_logship.client import bucket
from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.payload import get_max_payload
from nats_logship.client.stream_reader import LAST_PER_SUBJECT, at_sequence
from nats_logship.wire.positions import Positions, UnreadablePositions
from nats_logship.wire.streams import POSITIONS_BUCKET, positions_key
from nats_logship.wire.subjects import host_filter

_HOSTS_AT_ONCE = 200  # hosts whose snapshots are completed by one reader
_TRIES = 3
logger = logging.getLogger(__name__)


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Add the headers of all shippers' messages below sequence `until` to the hosts' snapshots.

    Raises `Rejected`, `ConnectionLost`.
    """
    info = await connection.api(f"STREAM.INFO.{stream}")
    if info["config"].get("mirror"):
        return  # these snapshots belong to the mirrored site
    hosts: dict[str, int] = {}
    reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
    async with aclosing(reader.read_all()) as messages:
        async for one in messages:
            subject, origin, _ = read_facts(one)
            if origin and subject:
                last = max(one.sequence, hosts.get(subject.host, 0))
                hosts[subject.host] = min(last, until - 1)
    names = sorted(hosts)
    for begin in range(0, len(names), _HOSTS_AT_ONCE):
        left = names[begin : begin + _HOSTS_AT_ONCE]
        for _ in range(_TRIES):
            left = await _complete(connection, stream, {host: hosts[host] for host in left}, until)
        if left:  # one such host must not keep the stream full for all hosts
            logger.warning(
                "cannot complete the snapshots of %s: each attempt met a newer one; "
                "the purge goes on, and these hosts may ship lines twice if they are killed now",
                ", ".join(left),
            )


async def _complete(
    connection: Connection, stream: str, hosts: Mapping[str, int], until: int
) -> list[str]:
    """Complete snapshots, each host's up to its sequence.

    Return the hosts whose shippers wrote newer snapshots meanwhile.
    """
    found = await asyncio.gather(*(_read_snapshot(connection, host) for host in hosts))
    read = {
        host: one
        for host, one in zip(hosts, found, strict=True)
        if _find_covered(one[0], stream) < hosts[host]
    }
    if not read:
        return []
    known = {host: positions for host, (positions, _) in read.items()}
    start = at_sequence(min(_find_covered(one, stream) for one in known.values()) + 1)
    filters = [host_filter(host) for host in known]
    reader = MessageReader(connection, stream, start, filters, headers_only=True)
    async with aclosing(reader.read_all(until - 1)) as messages:
        async for one in messages:
            subject, origin, _ = read_facts(one)  # any client may write to logs.x.<host>
            old = known.get(subject.host) if subject else None
            if subject and origin and old and one.sequence > _find_covered(old, stream):
                known[subject.host] = old.advance([origin], one.sequence, stream)
    changed = {host: one for host, one in known.items() if one is not read[host][0]}
    writes = (
        _write_snapshot(connection, host, new, read[host][1]) for host, new in changed.items()
    )
    written = await asyncio.gather(*writes)
    return [host for host, is_done in zip(changed, written, strict=True) if not is_done]


def _find_covered(positions: Positions, stream: str) -> int:
    covered = positions.covered.get(stream)
    return covered.sequence if covered else 0


async def _read_snapshot(connection: Connection, host: str) -> tuple[Positions, int]:
    """Return a host's snapshot and its revision; an empty one if it is missing or unreadable."""
    entry = await bucket.read(connection, POSITIONS_BUCKET, positions_key(host))
    try:
        positions = Positions.decode(entry.value) if entry else Positions()
    except UnreadablePositions:
        positions = Positions()
    return positions, entry.revision if entry else 0


async def _write_snapshot(
    connection: Connection, host: str, positions: Positions, revision: int
) -> bool:
    """Write a snapshot; return False if somebody else has written it meanwhile.

    Raises `Rejected` if the server cannot write just now.
    """
    value = positions.encode()
    if len(value) > await get_max_payload(connection):
        # so it is for the shipper: one such host must not keep the stream full for all hosts
        size = format_size(len(value))
        logger.warning("cannot complete the snapshot of %s: %s are too large", host, size)
        return True
    try:
        await bucket.write(connection, POSITIONS_BUCKET, positions_key(host), value, revision)
    except bucket.Conflict:
        return False
    except Rejected as error:
        if error.is_server_failure:
            raise  # no message may be purged yet
        logger.warning("cannot complete the snapshot of %s: %s", host, error)
    return True
