"""The stream of a partition as the broker describes it, and whether the partition's offset belongs to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from broker.client.answer import ConnectionLost, Rejected, is_certain
from broker.client.connection import Connection
from broker.wire.descent import Ancestor, ancestors, is_being_restored
from broker.wire.offset import Offset
from broker.wire.streams import STREAM
from receiver.storage.store import Damaged


class StreamMismatch(Damaged):
    """The stream is not the one that the offset belongs to; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the one that the offset belongs to; a claim carries the offset over."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream as the broker describes it: when it was made, and the sequences it holds, `[first, until)`.

    `ancestors` are the streams that it was restored from, oldest first. It has `messages` of `size` bytes, the newest of `last`.
    """

    created: str
    first: int
    until: int
    ancestors: tuple[Ancestor, ...] = ()
    name: str = STREAM
    messages: int = 0
    size: int = 0
    last: datetime = datetime(1, 1, 1, tzinfo=UTC)

    def in_common_with(self, created: str) -> int | None:
        """Return the end of what it has in common with a stream that it was restored from; None for any other."""
        return next((one.until for one in self.ancestors if one.created == created), None)


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


async def stream_state(connection: Connection, name: str) -> StreamState:
    """Ask what a stream holds; raises what `state_of` raises, `Rejected` when there is none."""
    return state_of(await connection.api(f"STREAM.INFO.{name}"))


def state_of(info: Mapping[str, Any]) -> StreamState:
    """Read what the broker says of a stream; raises `Rejected` while a backup is read in.

    Raises `ConnectionLost` when nobody can say so for sure: a stream that seems shorter than it is would look rewound.
    """
    name = info["config"]["name"]
    state, config, until = info["state"], info["config"], info["state"]["last_seq"] + 1
    if not is_certain(info):
        raise ConnectionLost(f"stream {name} has no leader that is sure of it")
    if is_being_restored(config):
        raise Rejected(503, 0, f"stream {name} is being restored from a backup")
    return StreamState(
        info["created"],
        state["first_seq"] if state["messages"] else until,
        until,
        ancestors(config),
        name,
        state["messages"],
        state["bytes"],
        datetime.fromisoformat(state["last_ts"]),
    )


async def hold_against_stream(connection: Connection, offset: Offset, partition: int) -> None:
    """Raise `StreamMismatch` when the stream is not, or no longer, the one that the offset belongs to."""
    start(offset, await stream_state(connection, offset.stream), partition)
