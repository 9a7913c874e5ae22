"""A partition's entry in the bucket LOGS_OFFSETS: how far its receiver has come, and who that is."""

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime

from broker.app.checksum import closed, is_intact

__all__ = ["Beginning", "Offset", "UnreadableOffset"]

_VERSION = 1
_MOST = 2**64 - 1  # of a sequence, and of all that is counted
_PRESENCE = re.compile(r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)?")
_REMEMBERED = 16  # beginnings; who has been away for longer than so many owners is told so


class UnreadableOffset(ValueError):
    """An entry that is not one of ours, or of a later version."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the offset stood, `next`, when an epoch began; `by_hand` when it was then moved elsewhere by a person.

    `restored` says that the stream came out of a backup then, or was another one: what files held by that time cannot be
    read again, and stays.
    `files` is the mark of the folder that this owner's journal is in, empty where it has none.
    Whoever wrote files in an earlier epoch tells by it how much of them counts, however far others have come since.
    """

    epoch: int
    next: int
    by_hand: bool = False
    files: str = ""
    restored: bool = False


@dataclass(frozen=True, slots=True)
class Offset:
    """The truth about a partition: `next` is the first stream sequence that no file holds yet.

    `epoch` counts the receivers that have owned the partition; `stream_created` tells a recreated stream from the one
    that `next` belongs to; `last_time` is when the last committed message was stored (RFC 3339), `committed_at` when
    this entry was written. `lines` and `size` (bytes) are totals over all epochs, `lineage` is how the last epochs began,
    oldest first. Whoever asks `presence` is answered as long as the owner lives; empty where it cannot be asked.
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
    lineage: tuple[Beginning, ...] = ()
    presence: str = ""
    released: bool = False
    clear_until: int = 0

    @property
    def is_moved(self) -> bool:
        """Whether a person has moved it and nobody has claimed it since."""
        return (
            bool(self.lineage) and self.lineage[-1].by_hand and self.lineage[-1].epoch == self.epoch
        )

    def with_beginning(self, beginning: Beginning) -> tuple[Beginning, ...]:
        """Return the lineage with one more epoch; of claims in a row with nothing written between, the last counts."""
        kept = self.lineage
        if (
            kept
            and not kept[-1].by_hand
            and not beginning.by_hand
            and kept[-1].next == beginning.next
        ):
            kept = kept[:-1]
        return (*kept, beginning)[-_REMEMBERED:]

    def advanced(self, until: int, lines: int, size: int, last_time: str, now: str) -> "Offset":
        """Return the entry after a batch of so many lines and bytes: everything before `until` is on disk."""
        return replace(
            self,
            next=until,
            lines=self.lines + lines,
            size=self.size + size,
            last_time=last_time,
            committed_at=now,
        )

    def encode(self) -> bytes:
        """Return the entry as it is stored: JSON with a version and a checksum."""
        return closed(json.dumps({"version": _VERSION, **asdict(self)})[:-1].encode())

    @classmethod
    def decode(cls, data: bytes) -> "Offset":
        """Read an entry; raises `UnreadableOffset`."""
        try:
            entry = json.loads(data)
            version = entry.pop("version")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadableOffset(f"not an offset: {data[:80]!r}") from error
        if not is_intact(data, entry):
            raise UnreadableOffset("an offset whose checksum is another: it is damaged")
        if version != _VERSION:
            raise UnreadableOffset(
                f"offset of version {version}; this program reads version {_VERSION}"
            )
        kinds = {field.name: field.type for field in fields(cls) if field.name != "lineage"}
        known = {key: value for key, value in entry.items() if key in kinds}
        if not all(_fits(value, kinds[key]) for key, value in known.items()):
            raise UnreadableOffset(f"not an offset: {data[:80]!r}")
        try:
            offset = cls(**known, lineage=_lineage(entry.get("lineage", [])))
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


def _lineage(entries: object) -> tuple[Beginning, ...]:
    if not isinstance(entries, list):
        raise TypeError("a lineage is a list")
    return tuple(_beginning(entry) for entry in entries)


def _beginning(entry: object) -> Beginning:
    match entry:
        case {"epoch": epoch, "next": sequence, "by_hand": bool(by_hand), **rest} if _fits(
            epoch, int
        ) and _fits(sequence, int):
            files, restored = str(rest.get("files", "")), rest.get("restored") is True
            return Beginning(epoch, sequence, by_hand, files, restored)
        case _:
            raise TypeError("a beginning has an epoch, a sequence and whether it was made by hand")
