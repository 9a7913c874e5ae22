"""A host whose lines come from another partition by now: they go on here when all before them is committed there.

A claim with `Log-Follows` says so (docs/protocol.md), and begins a batch. Waits point back in time: no two wait for each other.
"""

from contextlib import suppress
from datetime import datetime

from broker.client import bucket
from broker.client.answer import Denied, Rejected
from broker.client.connection import Connection
from broker.wire.delivery import Delivery, RawMessage
from broker.wire.message import Followed, MalformedMessage, Origin, decode_origin
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, offset_key, stream_of
from broker.wire.subjects import Subject
from receiver.consume.stream_state import stream_state

_NO_MESSAGE = 10037
_SKEW = 10_000_000_000  # nanoseconds by which the clocks of two servers of a cluster may differ


class MustWait(Exception):
    """The other partition has not come so far; a later attempt finds out whether it has by then."""


def follows(message: RawMessage) -> tuple[Followed, ...]:
    """Return the ends of a host's lines in other partitions that a message says it follows."""
    origin = _origin(message, b"Log-Follows")
    return origin.follows if origin else ()


def leaves_for(message: RawMessage) -> int | None:
    """Return the partition to which the host of a message has gone, None where it says nothing of that."""
    origin = _origin(message, b"Log-Moved")
    return origin.moved if origin else None


def _origin(message: RawMessage, header: bytes) -> Origin | None:
    if header not in message.head:  # as nearly always: it costs nothing
        return None
    with suppress(MalformedMessage):  # that's fine: it is set aside when its turn comes
        return decode_origin(message.headers)
    return None


async def require_received(
    connection: Connection,
    subject: Subject,
    ends: tuple[Followed, ...],
    claim: Delivery,
    own: Offset,
    streams: int,
) -> dict[Followed, int]:
    """Return how far other partitions are received when nothing of the host before its `claim` is left there.

    Else raise `MustWait`. It is 0 for what nobody has received, or what holds nothing of the host by now.

    The streams say what there is: a host that names what is not there must not hold others up.
    """
    latest = {end.partition: end for end in ends if end.partition != subject.partition}
    received = dict.fromkeys(latest.values(), 0)
    for end in received:
        stream = stream_of(end.partition, streams)
        before = Subject(end.partition, subject.host)
        if not await _is_there(connection, stream, before):
            continue
        entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(end.partition))
        reached = await _reached(connection, Offset.decode(entry.value), stream) if entry else 0
        left = await _first_left(connection, stream, before, end, reached)
        if left and _is_before(left, end, claim, is_same=stream == own.stream):
            words = f"it up to sequence {reached - 1}" if entry else "nothing of it"
            raise MustWait(
                f"host {subject.host} was in partition {end.partition} before, up to sequence {end.sequence}; "
                f"its receiver has received {words}"
            )
        received[end] = reached
    return received


def _is_before(left: tuple[int, int], end: Followed, claim: Delivery, *, is_same: bool) -> bool:
    """Whether a message comes before the claim of its host: by their sequences, or by time where these are of two streams."""
    sequence, stored_at = left
    if is_same:
        return sequence < claim.sequence
    return sequence <= end.sequence and stored_at < claim.stored_at + _SKEW


async def _is_there(connection: Connection, stream: str, before: Subject) -> bool:
    request = {"subjects_filter": str(before)}
    state = (await connection.api(f"STREAM.INFO.{stream}", request))["state"]
    return str(before) in (state.get("subjects") or ())


async def _reached(connection: Connection, offset: Offset, stream: str) -> int:
    """Return where a partition goes on in the stream that is there: its offset may be of one that this was restored from."""
    state = await stream_state(connection, stream)
    if offset.stream_created == state.created:
        return offset.next
    return min(offset.next, state.in_common_with(offset.stream_created) or 1)


async def _first_left(
    connection: Connection, stream: str, before: Subject, end: Followed, reached: int
) -> tuple[int, int] | None:
    """Return sequence and time, in nanoseconds, of the first message on a subject from `reached` on; None for none.

    Whoever may not read other partitions goes by the host's word.
    """
    try:
        request = {"seq": max(reached, 1), "next_by_subj": str(before)}
        found = (await connection.api(f"STREAM.MSG.GET.{stream}", request))["message"]
        stored = datetime.fromisoformat(found["time"])
        return int(found["seq"]), round(stored.timestamp() * 1e9)
    except Denied:
        return (end.sequence, 0) if reached <= end.sequence else None
    except Rejected as error:
        if error.error != _NO_MESSAGE:
            raise
        return None
