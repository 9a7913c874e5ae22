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

from broker.client import bucket
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.retention.headers import LAST_OF_EACH, read_headers
from broker.wire.message import MalformedMessage, Origin, decode_origin
from broker.wire.positions import Positions, PositionsUnreadable
from broker.wire.streams import POSITIONS_BUCKET, positions_key
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject, host_filter

__all__ = ["complete_snapshots"]

_AT_ONCE = 32
_TRIES = 3
logger = logging.getLogger(__name__)


async def complete_snapshots(connection: Connection, stream: str, until: int) -> None:
    """Return once the snapshots cover all messages of shippers below sequence `until`; raises `Rejected`, `ConnectionLost`."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(host: str, last: int) -> None:
        async with gate:
            await _complete(connection, stream, host, min(last + 1, until))

    hosts = await _hosts(connection, stream)
    await asyncio.gather(*(one(host, last) for host, last in hosts.items()))


async def _hosts(connection: Connection, stream: str) -> dict[str, int]:
    """Return the hosts whose last message is a shipper's, with the sequence of that message."""
    found: dict[str, int] = {}
    async with aclosing(read_headers(connection, stream, LAST_OF_EACH, [">"])) as heads:
        async for head in heads:
            if _origin(head.headers) is None:
                continue
            try:
                host = Subject.parse(head.subject).host
            except (InvalidSubject, InvalidHost):
                continue  # no shipper of ours has such a name
            found[host] = max(head.sequence, found.get(host, 0))
    return found


async def _complete(connection: Connection, stream: str, host: str, until: int) -> None:
    key = positions_key(host)
    for _ in range(_TRIES):
        entry = await bucket.read(connection, POSITIONS_BUCKET, key)
        try:
            saved = Positions.decode(entry.value) if entry else Positions(stream=stream)
        except PositionsUnreadable:
            saved = Positions(stream=stream)
        if _covered(saved, stream) >= until - 1:
            return
        completed = await _behind(connection, stream, host, saved, until)
        if completed is saved:
            return
        try:
            revision = entry.revision if entry else 0
            await bucket.write(connection, POSITIONS_BUCKET, key, completed.encode(), revision)
        except bucket.Conflict:
            continue  # the shipper wrote one meanwhile
        except Rejected as error:  # too large, as it is for the shipper itself
            logger.warning("cannot complete the snapshot of %s: %s", host, error)
            return
        return
    raise ConnectionLost(f"the snapshot of {host} is written again and again")


async def _behind(
    connection: Connection, stream: str, host: str, saved: Positions, until: int
) -> Positions:
    """Return the positions behind the host's messages below `until`; `saved` itself where no shipper wrote any."""
    start = {"deliver_policy": "by_start_sequence", "opt_start_seq": _covered(saved, stream) + 1}
    positions = saved
    async with aclosing(read_headers(connection, stream, start, [host_filter(host)])) as heads:
        async for head in heads:
            if head.sequence >= until:
                break
            if origin := _origin(head.headers):
                positions = positions.advance([origin], head.sequence, stream)
    return positions


def _covered(saved: Positions, stream: str) -> int:
    covered = saved.covered(stream)
    return covered.sequence if covered else 0


def _origin(headers: Mapping[str, str]) -> Origin | None:
    try:
        return decode_origin(headers)
    except MalformedMessage:
        return None
