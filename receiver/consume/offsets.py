"""Where a partition goes on from: what KV says, held against what the stream is. Decides; never asks."""

from dataclasses import dataclass, replace
from datetime import datetime

from broker.app.exits import ConfigurationError
from broker.wire.descent import Ancestor
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM, offset_key
from receiver.storage.position import Damaged, StoredBatch, first_undone


class StreamMismatch(ConfigurationError):
    """The stream is not the one that the offset belongs to; going on could lose or repeat lines."""


class StreamRestored(StreamMismatch):
    """The stream was restored from a backup of the one that the offset belongs to; a claim carries the offset over."""


class FilesMismatch(ConfigurationError):
    """The files are not those that the offset speaks of; going on could lose or repeat lines."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stream as the broker describes it: when it was made, and the sequences it holds, `[first, until)`.

    `ancestors` are the streams that it was restored from, oldest first.
    """

    created: str
    first: int
    until: int
    ancestors: tuple[Ancestor, ...] = ()
    name: str = STREAM

    def in_common_with(self, created: str) -> int | None:
        """Return the end of what it has in common with a stream that it was restored from; None for any other."""
        return next((one.until for one in self.ancestors if one.created == created), None)


def start(offset: Offset | None, stream: StreamState, partition: int) -> int:
    """Return the first sequence to receive; raises `StreamMismatch` when the stream was recreated or rewound."""
    if offset is None:
        return max(stream.first, 1)
    if stream.in_common_with(offset.stream_created) is not None:
        raise StreamRestored(
            f"partition {partition}: stream {stream.name} was restored from a backup"
        )
    if offset.stream_created != stream.created or offset.next > max(stream.until, 1):
        raise StreamMismatch(
            f"partition {partition}: stream {stream.name}, of {stream.created} and up to sequence {stream.until - 1}, was made "
            f"anew, rewound or restored: the offset {offset.next} belongs to the one of {offset.stream_created}; `logreceiver "
            f"offsets set --partition {partition} --to earliest` begins with what the stream holds now, behind the lines that "
            "the files have"
        )
    return offset.next


def carried_over(offset: Offset | None, stream: StreamState, now: str) -> Offset | None:
    """Return the entry as it counts in a stream that was restored; any other as it is.

    As if moved by a person, who has asked for the restore: what the files have since is told by their spans.
    """
    until = stream.in_common_with(offset.stream_created) if offset else None
    if offset is None or until is None:
        return offset
    # behind the end of the backup the same sequences are other lines
    return moved(offset, stream, min(offset.next, until), "logbroker restore", now)


def claimed(
    offset: Offset | None,
    stream: StreamState,
    partition: int,
    owner: str,
    now: str,
    last: StoredBatch | None = None,
) -> Offset:
    """Return the entry of a new owner, who cannot be asked yet: the next epoch; `last` is the batch that its store has.

    Raises `StreamMismatch`, and `FilesMismatch` where store and offset do not go together.
    """
    first = start(offset, stream, partition)
    if offset is None:
        if last is not None and last.until:
            raise FilesMismatch(
                f"partition {partition}: key {offset_key(partition)} of bucket {OFFSETS_BUCKET} is gone, but the files were "
                f"written up to sequence {last.until}: `logreceiver offsets set --partition {partition} --to {last.until}` goes "
                "on behind them"
            )
        return Offset(first, 1, stream.created, owner, committed_at=now, stream=stream.name)
    claim = replace(
        offset,
        epoch=offset.epoch + 1,
        owner=owner,
        presence="",
        released=False,
        committed_at=now,
    )
    try:
        if last is not None:
            first_undone(last, claim, partition)
    except Damaged as error:
        raise FilesMismatch(f"partition {partition}: {error}") from None
    return claim


def moved(offset: Offset | None, stream: StreamState, to: int, by: str, now: str) -> Offset:
    """Return the entry of an offset that a person moves, and that may be none.

    What the files have is judged by where the offset stood before; bytes that they have already are not written again.
    """
    if offset is None:  # where it stood nobody knows
        made = (to, 1, stream.created, by)
        return Offset(*made, committed_at=now, moved_in=1, stream=stream.name)
    return offset.moved(to, stream.created, by, now)


def nanoseconds(moment: str) -> int:
    """Read a moment that `iso` wrote, since the epoch; 0 for none, or what is none."""
    try:
        return round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000
    except ValueError:
        return 0


def iso(moment: datetime) -> str:
    """Write a moment as entries hold it: RFC 3339, to the millisecond."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
