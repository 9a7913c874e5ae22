"""A partition's entry in the bucket LOGS_OFFSETS: how far its receiver has come, and who that is."""

import json
from dataclasses import asdict, dataclass, fields

__all__ = ["Offset", "UnreadableOffset"]

_VERSION = 1


class UnreadableOffset(ValueError):
    """An entry that is not one of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The truth about a partition: `next` is the first stream sequence that no file holds yet.

    `epoch` counts the receivers that have owned the partition; `stream_created` tells a recreated stream from the one
    that `next` belongs to; `last_time` is when the last committed message was stored (RFC 3339), `committed_at` when
    this entry was written. `lines` and `size` (bytes) are totals over all epochs.
    """

    next: int
    epoch: int
    stream_created: str
    owner: str
    lines: int = 0
    size: int = 0
    last_time: str = ""
    committed_at: str = ""

    def encode(self) -> bytes:
        """Return the entry as it is stored: JSON with a version."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read an entry; raises `UnreadableOffset`."""
        try:
            entry = json.loads(data)
            version = entry.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreadableOffset(f"not an offset: {data[:80]!r}") from error
        if version != _VERSION:
            raise UnreadableOffset(
                f"offset of version {version}; this program reads version {_VERSION}"
            )
        kinds = {field.name: field.type for field in fields(cls)}
        known = {key: value for key, value in entry.items() if key in kinds}
        if any(type(value) is not kinds[key] for key, value in known.items()):
            raise UnreadableOffset(f"not an offset: {data[:80]!r}")
        try:
            return cls(**known)
        except TypeError as error:
            raise UnreadableOffset(f"not an offset: {data[:80]!r}") from error
