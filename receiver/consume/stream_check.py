"""Whether the offset of a partition belongs to the stream that the broker has now."""

from nats_logship.client.connection import Connection
from nats_logship.client.stream_state import StreamState, get_stream_state
from nats_logship.wire.offset import Offset
from receiver.storage.damage import Damaged


class StreamMismatch(Damaged):
    """The stream is not the one that the offset belongs to; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the one that the offset belongs to; a claim carries the offset over."""


def start(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive; raises `StreamMismatch` when the stream was recreated or rewound."""
    if offset is None:
        return max(stream.first, 1)
    if stream.in_common_with(offset.stream_created) is not None:
        raise StreamRestored(partition, f"stream {stream.name} was restored from a backup", "")
    if offset.stream_created != stream.created or offset.next > max(stream.until, 1):
        # not up to where a growing stream goes: a reason that changes would be logged again and again
        raise StreamMismatch(
            partition,
            f"stream {stream.name}, of {stream.created}, was made anew, rewound or restored: the offset {offset.next} belongs "
            f"to the one of {offset.stream_created}",
            "set --partition {} --to earliest",
            "begins with what the stream holds now, behind the lines that the files have",
        )
    return offset.next


async def require_same_stream(connection: Connection, offset: Offset, partition: int) -> None:
    """Raise `StreamMismatch` when the stream is not, or no longer, the one that the offset belongs to."""
    start(offset, await get_stream_state(connection, offset.stream), partition)
