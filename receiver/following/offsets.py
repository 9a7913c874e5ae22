"""Where a partition goes on from: what KV says, held against what the stream is. Decides; never asks."""

from dataclasses import dataclass

from broker.exits import ConfigurationError
from broker.offset import Offset
from broker.topology import OFFSETS_BUCKET, offset_key

__all__ = ["StreamMismatch", "StreamState", "advanced", "claimed", "start"]


class StreamMismatch(ConfigurationError):
    """The stream is not the one that the offset belongs to; going on could lose or repeat lines."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream as the broker describes it: when it was made, and the sequences it holds, `[first, until)`."""

    created: str
    first: int
    until: int


def start(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive; raises `StreamMismatch` when the stream was recreated or rewound."""
    if offset is None:
        return max(stream.first, 1)
    if offset.stream_created != stream.created:
        raise StreamMismatch(
            f"partition {partition}: stream LOGS was made anew at {stream.created}, its offset {offset.next} belongs "
            f"to the one of {offset.stream_created}; {_way_out(partition)}"
        )
    if offset.next > max(stream.until, 1):
        raise StreamMismatch(
            f"partition {partition}: the offset {offset.next} is beyond the stream, which ends before "
            f"{stream.until}: the stream was rewound or restored; {_way_out(partition)}"
        )
    return offset.next


def _way_out(partition: int) -> str:
    return (
        f"to receive what the stream holds now, delete key {offset_key(partition)} of bucket {OFFSETS_BUCKET} "
        "and use an empty --output"
    )


def claimed(
    offset: Offset | None, stream: StreamState, partition: int, owner: str, now: str
) -> Offset:
    """Return the entry of a new owner: the next epoch. Raises `StreamMismatch`."""
    first = start(offset, stream, partition)
    if offset is None:
        return Offset(first, 1, stream.created, owner, committed_at=now)
    return Offset(
        first,
        offset.epoch + 1,
        stream.created,
        owner,
        offset.lines,
        offset.size,
        offset.last_time,
        now,
    )


def advanced(offset: Offset, until: int, lines: int, size: int, last_time: str, now: str) -> Offset:
    """Return the entry after a batch: everything before `until` is on disk."""
    return Offset(
        next=until,
        epoch=offset.epoch,
        stream_created=offset.stream_created,
        owner=offset.owner,
        lines=offset.lines + lines,
        size=offset.size + size,
        last_time=last_time,
        committed_at=now,
    )
