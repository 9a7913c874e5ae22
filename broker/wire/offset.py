"""A partition's entry in the bucket LOGS_OFFSETS: how far its receiver has come, and who that is."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter

from broker.wire.streams import STREAM

_VERSION = 1


def _time(text: str) -> str:
    if text and not datetime.fromisoformat(text).tzinfo:
        raise ValueError("has no time zone")
    return text


Time = Annotated[str, AfterValidator(_time)]
Number = Annotated[int, Field(ge=0, le=2**64 - 1)]


class UnreadableOffset(ValueError):
    """An entry that is not one of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The truth about a partition: `next` is the first sequence of `stream` that no file holds yet.

    `epoch` counts the receivers that have owned the partition; `stream_created` tells a recreated stream from the one
    that `next` belongs to; `last_time` is when the last committed message was stored (RFC 3339), `committed_at` when
    this entry was written. `lines` and `size` (bytes) are totals over all epochs. `commit` is the id of the batch that was
    committed last, by which a store knows it; empty where that is not known. `moved_in` is the epoch in which a person has
    moved the offset since, 0 for none. Whoever asks `presence` is answered as long as the owner lives; empty where it cannot
    be asked.
    An owner that ended in order has `released` it, to whoever waits.
    """

    next: Number
    epoch: Number
    stream_created: str
    owner: str
    lines: Number = 0
    size: Number = 0
    last_time: Time = ""
    committed_at: Time = ""
    commit: str = ""
    moved_in: Number = 0
    # it becomes a subject that is asked
    presence: Annotated[str, Field(pattern=r"^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?$")] = ""
    released: bool = False
    stream: str = STREAM

    @property
    def is_moved(self) -> bool:
        """Whether a person has moved it and nobody has claimed it since."""
        return 0 < self.moved_in == self.epoch

    def encode(self) -> bytes:
        """Return the entry as it is stored: JSON with a version."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read an entry; raises `UnreadableOffset`."""
        try:
            if json.loads(data)["version"] == _VERSION:
                return _ENTRY.validate_json(data, strict=True)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass  # said below
        raise UnreadableOffset(f"not an offset of version {_VERSION}: {data[:80]!r}")


_ENTRY = TypeAdapter(Offset)
