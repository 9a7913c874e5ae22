"""A partition's entry in the bucket LOGS_OFFSETS: how far its receiver has come, and who that is."""

import json
import re
from dataclasses import asdict, dataclass, fields
from datetime import datetime

from nats_logship.app.timestamps import parse_time
from nats_logship.wire.streams import STREAM

_VERSION = 1
_MOST = 2**64 - 1  # of a sequence, and of all that is counted
_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")


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

    next: int
    epoch: int
    stream_created: str
    owner: str
    lines: int = 0
    size: int = 0
    last_time: str = ""
    committed_at: str = ""
    commit: str = ""
    moved_in: int = 0
    presence: str = ""
    released: bool = False
    stream: str = STREAM

    @property
    def is_moved(self) -> bool:
        """Whether a person has moved it and nobody has claimed it since."""
        return 0 < self.moved_in == self.epoch

    @property
    def stored_at(self) -> int:
        """`last_time` in nanoseconds since the epoch, 0 for none."""
        return parse_time(self.last_time) if self.last_time else 0

    def encode(self) -> bytes:
        """Return the entry as it is stored: JSON with a version."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read an entry; raises `UnreadableOffset`."""
        kinds = {field.name: field.type for field in fields(cls)}
        try:
            entry = json.loads(data)
            known = {name: value for name, value in entry.items() if name in kinds}
            offset = cls(**known)
            times = [
                datetime.fromisoformat(one)
                for one in (offset.last_time, offset.committed_at)
                if one
            ]
            is_ours = (
                entry["version"] == _VERSION
                and all(_fits(value, kinds[name]) for name, value in known.items())
                and all(time.tzinfo for time in times)
                and _PRESENCE.fullmatch(offset.presence)  # it becomes a subject that is asked
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            is_ours = None
        if not is_ours:
            raise UnreadableOffset(f"not an offset of version {_VERSION}: {data[:80]!r}")
        return offset


def _fits(value: object, kind: object) -> bool:
    return type(value) is kind and (not isinstance(value, int) or 0 <= value <= _MOST)
