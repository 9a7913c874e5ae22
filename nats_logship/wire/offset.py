"""The offset of a partition: its entry in the bucket LOGS_OFFSETS."""

import json
import re
from dataclasses import dataclass, fields
from datetime import datetime

from nats_logship.app.timestamps import parse_time
from nats_logship.wire.streams import STREAM

_VERSION = 1
_MAX_NUMBER = 2**64 - 1  # of a sequence
_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")


class UnreadableOffset(ValueError):
    """The entry is damaged, or of a later version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a partition is received, and who receives it. Times are RFC 3339."""

    next: int  # the first sequence of `stream` that is in no file yet
    epoch: int  # claims and moves by hand so far; a higher epoch fences lower ones
    stream_created: str  # another time means another stream of the same name
    owner: str
    lines: int = 0  # received in all epochs
    size: int = 0  # bytes received in all epochs
    last_time: str = ""  # when the last committed message was stored
    committed_at: str = ""  # when this entry was written
    commit: str = ""  # the id of the last committed batch; empty if not known
    moved_in: int = 0  # the epoch in which a person moved the offset; 0 for none
    presence: str = ""  # a subject at which the living owner answers; empty for none
    released: bool = False  # the owner has ended in order: a standby may take over at once
    stream: str = STREAM

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
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"version": _VERSION, **values}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read the value of an entry; raises `UnreadableOffset`."""
        kinds = {field.name: field.type for field in fields(cls)}
        try:
            entry = json.loads(data)
            known = {name: value for name, value in entry.items() if name in kinds}
            offset = cls(**known)
            times = map(
                datetime.fromisoformat, filter(None, (offset.last_time, offset.committed_at))
            )
            is_ours = (
                entry["version"] == _VERSION
                and all(_fits(value, kinds[name]) for name, value in known.items())
                and all(time.tzinfo for time in times)
                and _PRESENCE.fullmatch(offset.presence)  # somebody will publish to this subject
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_ours = None
        if not is_ours:
            raise UnreadableOffset(f"not an offset of version {_VERSION}: {data[:80]!r}")
        return offset


def _fits(value: object, kind: object) -> bool:
    return type(value) is kind and (not isinstance(value, int) or 0 <= value <= _MAX_NUMBER)
