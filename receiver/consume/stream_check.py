"""Check that the offset of a partition belongs to the stream that the broker has now."""

from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.offset import Offset
from receiver.storage.damage import Damaged


class StreamMismatch(Damaged):
    """The offset belongs to another stream; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the offset's stream; a claim adapts the offset."""


def find_first_sequence(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive.

    Raises `StreamMismatch` if the stream was recreated or went back to an earlier end.
    """
    if offset is None:
        return max(stream.first, 1)
    if stream.in_common_with(offset.stream_created) is not None:
        raise StreamRestored(partition, f"stream {stream.name} was restored from a backup", "")
    if offset.stream_created != stream.created or offset.next > max(stream.until, 1):
        # the reason does not name the stream's end: it grows, and each new reason is logged
        raise StreamMismatch(
            partition,
            f"stream {stream.name}, of {stream.created}, was recreated, rewound or restored: the "
            f"offset {offset.next} belongs to the one of {offset.stream_created}",
            "set --partition {} --to earliest",
            "begins with what the stream holds now, behind the lines that the files have",
        )
    return offset.next


async def require_same_stream(connection: Connection, offset: Offset, partition: int) -> None:
    """Raise `StreamMismatch` unless the offset belongs to the stream that the broker has now."""
    find_first_sequence(offset, await get_stream_state(connection, offset.stream), partition)
