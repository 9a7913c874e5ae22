"""A host whose lines come from another partition by now: they go on here when all before them is committed there.

Its shipper says so by a claim with `Log-Follows` (docs/protocol.md). Such a claim begins a batch. Every wait points back in
the stream, so that no two partitions wait for each other.
"""

from broker.client import bucket
from broker.client.connection import Arrived, Connection
from broker.wire.message import Followed, MalformedMessage, Origin, decode_origin
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key

__all__ = ["MustWait", "follows", "leaves_for", "require_received"]


class MustWait(Exception):
    """The other partition has not come so far; a later attempt finds out whether it has by then."""


def follows(message: Arrived, sequence: int) -> tuple[Followed, ...]:
    """Return the ends of a host's lines in other partitions that a message says it follows, all of them before its own."""
    if b"Log-Follows" not in message.head:  # as nearly always: it costs nothing
        return ()
    origin = _origin(message)
    return tuple(one for one in origin.follows if one.sequence < sequence) if origin else ()


def leaves_for(message: Arrived) -> int | None:
    """Return the partition to which the host of a message has gone, None where it says nothing of that."""
    if b"Log-Moved" not in message.head:
        return None
    origin = _origin(message)
    return origin.moved if origin else None


def _origin(message: Arrived) -> Origin | None:
    try:
        return decode_origin(message.headers)
    except MalformedMessage:
        return None  # it is set aside when its turn comes


async def require_received(
    connection: Connection, host: str, ends: tuple[Followed, ...], own: Offset, partitions: int
) -> None:
    """Return when the host's lines in other partitions are committed, or are in the stream no more; else raise `MustWait`.

    A partition that no receiver has ever owned counts only where it is one of the `partitions` that there are.
    """
    for end in ends:
        key = offset_key(end.partition)
        entry = await bucket.read(connection, OFFSETS_BUCKET, key)
        offset = Offset.decode(entry.value) if entry else None
        if offset is None and end.partition >= partitions:
            continue
        is_same = offset is not None and offset.stream_created == own.stream_created
        if offset is not None and is_same and offset.next > end.sequence:
            continue
        info = await connection.api(f"STREAM.INFO.{STREAM}")
        if info["state"]["first_seq"] > end.sequence:
            continue
        reached = "nothing of it" if offset is None else f"it up to sequence {offset.next - 1}"
        raise MustWait(
            f"host {host} was in partition {end.partition} before, up to sequence {end.sequence}; "
            f"its receiver has received {reached}"
        )
