"""Check that the offset of a partition belongs to the stream that the broker has now."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class StreamStates:
    """The states of streams, asked for once for all partitions of a receiver.

    A state that is some seconds old may clear an offset. Only one that is new may object: the
    offset may have moved since.
    """

    connection: Connection
    most_age: float = 5.0  # seconds
    _found: dict[str, tuple[float, StreamState]] = field(default_factory=dict)

    async def require_same_stream(self, offset: Offset, partition: int) -> None:
        """Raise as `require_same_stream`."""
        now, name = asyncio.get_running_loop().time(), offset.stream
        if name in self._found and now - self._found[name][0] < self.most_age:
            with suppress(StreamMismatch):
                find_first_sequence(offset, self._found[name][1], partition)
                return
        self._found[name] = now, await get_stream_state(self.connection, name)
        find_first_sequence(offset, self._found[name][1], partition)
