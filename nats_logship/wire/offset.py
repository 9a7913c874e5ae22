"""The offset of a partition: its entry in the bucket LOGS_OFFSETS."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from nats_logship.app.timestamps import parse_time
from nats_logship.wire.streams import STREAM

_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class UnreadableOffset(ValueError):
    """The entry is damaged, or of a later version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a partition is received, and who receives it. Times are RFC 3339."""

    next: _Number  # the first sequence of `stream` that is in no file yet
    epoch: _Number  # claims and moves by hand so far; a higher epoch fences lower ones
    stream_created: str  # another time means another stream of the same name
    owner: str
    lines: _Number = 0  # received in all epochs
    size: _Number = 0  # bytes received in all epochs
    last_time: str = ""  # when the last committed message was stored
    committed_at: str = ""  # when this entry was written
    commit: str = ""  # the id of the last committed batch; empty if not known
    moved_in: _Number = 0  # the epoch in which a person moved the offset; 0 for none
    presence: str = ""  # a subject at which the living owner answers; empty for none
    released: bool = False  # the owner has ended in order: a standby may take over at once
    stream: str = STREAM
    version: Literal[1] = 1

    @property
    def is_moved(self) -> bool:
        """Whether a person has moved the offset and nobody has claimed the partition since."""
        return 0 < self.moved_in == self.epoch

    @property
    def stored_at(self) -> int:
        """`last_time` in nanoseconds since the epoch, 0 for none."""
        return parse_time(self.last_time) if self.last_time else 0

    def encode(self) -> bytes:
        """Return the value of the entry: JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read the value of an entry; raises `UnreadableOffset`."""
        try:
            offset = msgspec.json.decode(data, type=cls)
            times = filter(None, (offset.last_time, offset.committed_at))
            is_ours = (
                all(datetime.fromisoformat(time).tzinfo for time in times)
                and _PRESENCE.fullmatch(offset.presence)  # somebody will publish to this subject
            )
        except (ValueError, RecursionError):
            is_ours = None
        if not is_ours:
            raise UnreadableOffset(f"not an offset of version 1: {data[:80]!r}")
        return offset
