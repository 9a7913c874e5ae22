"""A partition's entry in the bucket LOGS_OFFSETS: how far its receiver has come, and who that is."""

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime

from broker.wire.streams import STREAM

__all__ = ["Offset", "UnreadableOffset"]

_VERSION = 1
_MOST = 2**64 - 1  # of a sequence, and of all that is counted
_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")
_MOST_MOVES = 16  # by hand, with nothing committed between them


class UnreadableOffset(ValueError):
    """An entry that is not one of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Offset:
    """The truth about a partition: `next` is the first sequence of `stream` that no file holds yet.

    `epoch` counts the receivers that have owned the partition; `stream_created` tells a recreated stream from the one
    that `next` belongs to; `last_time` is when the last committed message was stored (RFC 3339), `committed_at` when
    this entry was written. `lines` and `size` (bytes) are totals over all epochs. `committed_in` is the epoch of the last
    commit, 0 for none; `moves` are the epochs in which persons have moved the offset since, each with where it was before,
    0 where that is not known: by it the files are judged that were written before. Whoever asks `presence` is answered as long as the owner lives; empty where it cannot be asked.
    An owner that ended in order has `released` it, to whoever waits; before `clear_until` there was nothing more to receive.
    """

    next: int
    epoch: int
    stream_created: str
    owner: str
    lines: int = 0
    size: int = 0
    last_time: str = ""
    committed_at: str = ""
    committed_in: int = 0
    moves: tuple[tuple[int, int], ...] = ()
    presence: str = ""
    released: bool = False
    clear_until: int = 0
    stream: str = STREAM

    @property
    def is_moved(self) -> bool:
        """Whether a person has moved it and nobody has claimed it since."""
        return bool(self.moves) and self.moves[-1][0] == self.epoch

    def moved(self, to: int, stream_created: str, by: str, now: str) -> "Offset":
        """Return the entry after a person has moved it: an epoch of its own, which stops whoever owns the partition."""
        epoch = self.epoch + 1
        return replace(
            self,
            next=to,
            epoch=epoch,
            stream_created=stream_created,
            owner=by,
            presence="",
            released=False,
            clear_until=0,
            committed_at=now,
            moves=(*self.moves, (epoch, self.next))[-_MOST_MOVES:],
        )

    def advanced(self, until: int, lines: int, size: int, last_time: str, now: str) -> "Offset":
        """Return the entry after a batch of so many lines and bytes: everything before `until` is on disk."""
        return replace(
            self,
            next=until,
            lines=self.lines + lines,
            size=self.size + size,
            last_time=last_time,
            committed_at=now,
            committed_in=self.epoch,
            moves=(),
        )

    def encode(self) -> bytes:
        """Return the entry as it is stored: JSON with a version."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read an entry; raises `UnreadableOffset`."""
        try:
            entry = json.loads(data)
            version = entry.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableOffset(f"not an offset: {data[:80]!r}") from error
        if version != _VERSION:
            raise UnreadableOffset(
                f"offset of version {version}; this program reads version {_VERSION}"
            )
        kinds = {field.name: field.type for field in fields(cls) if field.name != "moves"}
        known = {key: value for key, value in entry.items() if key in kinds}
        if not all(_fits(value, kinds[key]) for key, value in known.items()):
            raise UnreadableOffset(f"not an offset: {data[:80]!r}")
        try:
            offset = cls(**known, moves=_moves(entry.get("moves", [])))
        except TypeError as error:
            raise UnreadableOffset(f"not an offset: {data[:80]!r}") from error
        if not _PRESENCE.fullmatch(offset.presence):  # it becomes a subject that is asked
            raise UnreadableOffset(f"an offset whose presence is no address: {data[:80]!r}")
        if not (_is_time(offset.last_time) and _is_time(offset.committed_at)):
            raise UnreadableOffset(f"an offset whose times are none: {data[:80]!r}")
        return offset


def _is_time(text: str) -> bool:
    """Whether a text is empty or a time with its zone (RFC 3339)."""
    try:
        return not text or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _fits(value: object, kind: object) -> bool:
    return type(value) is kind and (not isinstance(value, int) or 0 <= value <= _MOST)


def _moves(entries: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(entries, list):
        raise TypeError("moves are a list")
    return tuple(_move(entry) for entry in entries)


def _move(entry: object) -> tuple[int, int]:
    match entry:
        case [int(epoch), int(sequence)] if _fits(epoch, int) and _fits(sequence, int):
            return epoch, sequence
        case _:
            raise TypeError("a move has an epoch and a sequence")
