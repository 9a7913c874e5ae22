"""A host whose lines come from another partition by now: they go on here when all before them is committed there.

Its shipper says so by a claim with `Log-Follows` (docs/protocol.md). Such a claim begins a batch. Every wait points back in
the stream, so that no two partitions wait for each other.
"""

from broker.client import bucket
from broker.client.connection import Arrived, Connection, Denied, Rejected
from broker.wire.message import Followed, MalformedMessage, Origin, decode_origin
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from broker.wire.subjects import Subject, host_filter
from receiver.consume.claim import stream_state

__all__ = ["MustWait", "follows", "leaves_for", "require_received"]

_NO_MESSAGE = 10037


class MustWait(Exception):
    """The other partition has not come so far; a later attempt finds out whether it has by then."""


def follows(message: Arrived) -> tuple[Followed, ...]:
    """Return the ends of a host's lines in other partitions that a message says it follows."""
    if b"Log-Follows" not in message.head:  # as nearly always: it costs nothing
        return ()
    origin = _origin(message)
    return origin.follows if origin else ()


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
    connection: Connection, subject: Subject, ends: tuple[Followed, ...], sequence: int, own: Offset
) -> dict[Followed, int]:
    """Return how far other partitions are received when nothing of the host before its claim at `sequence` is left there.

    Else raise `MustWait`. It is 0 for what nobody has received, or what holds nothing of the host by now.

    The stream says what there is: a host that names what is not there must not hold others up.
    """
    request = {"subjects_filter": host_filter(subject.host)}
    state = (await connection.api(f"STREAM.INFO.{STREAM}", request))["state"]
    there = state.get("subjects") or ()
    latest = {end.partition: end for end in ends if end.partition != subject.partition}
    received = dict.fromkeys(latest.values(), 0)
    for end in received:
        place = Subject(end.partition, subject.host)
        if str(place) not in there:
            continue
        entry = await bucket.read(connection, OFFSETS_BUCKET, offset_key(end.partition))
        reached = await _reached(connection, Offset.decode(entry.value), own) if entry else 0
        left = await _first_left(connection, place, end, reached)
        if left is not None and left < sequence:
            words = f"it up to sequence {reached - 1}" if entry else "nothing of it"
            raise MustWait(
                f"host {subject.host} was in partition {end.partition} before, up to sequence {end.sequence}; "
                f"its receiver has received {words}"
            )
        received[end] = reached
    return received


async def _reached(connection: Connection, offset: Offset, own: Offset) -> int:
    """Return where a partition goes on in the stream that is there: its offset may be of one that this was restored from."""
    if offset.stream_created == own.stream_created:
        return offset.next
    stream = await stream_state(connection)
    return min(offset.next, stream.in_common_with(offset.stream_created) or 1)


async def _first_left(
    connection: Connection, subject: Subject, end: Followed, reached: int
) -> int | None:
    """Return the sequence of the first message on a subject from `reached` on, None where there is none.

    Whoever may not read other partitions goes by the host's word.
    """
    try:
        request = {"seq": max(reached, 1), "next_by_subj": str(subject)}
        answer = await connection.api(f"STREAM.MSG.GET.{STREAM}", request)
        return int(answer["message"]["seq"])
    except Denied:
        return end.sequence if reached <= end.sequence else None
    except Rejected as error:
        if error.error != _NO_MESSAGE:
            raise
        return None
