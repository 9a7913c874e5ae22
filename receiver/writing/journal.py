"""The undo journal of a partition: what every file was like before the batch that KV may not cover yet.

This room encodes, decodes and decides; `logbook.py` keeps it. The law: no byte is appended to a file before the file's
pre-image is in the journal and on disk. Each line ends in a checksum over it and the lines of its batch before it: a digit that
changed on the disk would still be a number, and lines would be cut off or left standing twice.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from zlib import crc32

from broker.wire.offset import Beginning

__all__ = [
    "Batch",
    "DamagedJournal",
    "PreImage",
    "Verdict",
    "decide",
    "decode",
    "encode_end",
    "encode_images",
    "encode_start",
    "is_accepted",
    "sealed",
]

_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: it costs more than its use

_VERSION = 2
_OPENING = b'{"version":'  # how encode_start begins; inside a name the quotes would be escaped
_WRITTEN_BY = re.compile(_OPENING + rb"(\d{1,9}),")
_SEAL = len(" 01234567")


class DamagedJournal(ValueError):
    """A journal that breaks off in its middle or is of another version."""


@dataclass(frozen=True, slots=True)
class PreImage:
    """A file before a batch: its name, its length in bytes (None: it was not there), the number its segment would get.

    `moment` is its time of change in nanoseconds since the epoch, which rotation by time goes by; 0 where that is not
    of interest. `inode` tells it from a file that somebody else has put in its place; 0 where that is not known.
    """

    name: str
    length: int | None
    number: int
    moment: int = 0
    inode: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the journal knows it; `until` is None while it has not been written to its end.

    `inode` is that of the journal itself: where the journal was copied, so were the files, and no inode says anything.
    `spans_before` and `spans` are the seals of the file of spans before the batch and behind it, empty where that is not known.
    """

    epoch: int
    first: int
    until: int | None
    images: tuple[PreImage, ...]
    inode: int = field(default=0, compare=False)
    spans_before: str = ""
    spans: str = ""

    @property
    def is_settled(self) -> bool:
        """Say whether nothing can undo it any more, whatever KV says: it has no messages and came to its end."""
        return self.until == self.first

    def seen_in(self, inode: int) -> "Batch":
        """Return the batch as a journal of this inode has it."""
        if self.inode == inode:
            return self
        return replace(self, images=tuple(replace(image, inode=0) for image in self.images))


class Verdict(Enum):
    """What the last batch of the journal means for an assignment."""

    CLEAN = "clean"
    """It was committed, or there was none, or it turned files only and came to its end."""
    UNDO = "undo"
    """It was not committed: its files go back to their pre-images first."""
    NEWER = "newer"
    """A receiver of a later epoch has written here: this task is a zombie."""
    FOREIGN = "foreign"
    """Neither: journal and offset do not belong together."""


def decide(
    last: Batch | None,
    first: int,
    epoch: int,
    lineage: Sequence[Beginning] = (),
    *,
    is_passed: bool = False,
) -> Verdict:
    """Decide what is to be done before a batch of `epoch` that starts at `first`, which is KV's `next`.

    `is_passed` says that spans were written behind those that the last batch began with: its files are on disk, though the
    journal may have been cut before it says so. Once a person has moved the offset, that alone tells it from a torn one.

    A batch of an earlier epoch is judged by where the offset stood when the epoch after its own began: what others have
    received since says nothing about these files.
    """
    if last is None:
        return Verdict.CLEAN
    if last.epoch > epoch:
        return Verdict.NEWER
    later = [one for one in lineage if one.epoch > last.epoch]
    if any(one.restored for one in later):
        # the stream may lack what is in the files, so only what is torn is undone; spans tell what is there twice
        return Verdict.UNDO if last.until is None else Verdict.CLEAN
    after = later[0] if later else Beginning(epoch, first)
    if after.next in {last.until, last.first}:
        return Verdict.CLEAN if last.until == after.next else Verdict.UNDO
    by_hand = [number for number, one in enumerate(later, 1) if one.by_hand]
    if not by_hand:
        return Verdict.FOREIGN
    target = later[by_hand[-1]].next if by_hand[-1] < len(later) else first
    is_torn = last.until is None and not is_passed
    is_undone = is_torn or (last.first == target and last.until not in {None, last.first})
    return Verdict.UNDO if is_undone else Verdict.CLEAN


def is_accepted(last: Batch | None, lineage: Sequence[Beginning]) -> bool:
    """Say whether a person has moved the offset since the last batch, and with that taken journal and files as they are."""
    return last is not None and any(one.by_hand for one in lineage if one.epoch > last.epoch)


def encode_start(epoch: int, first: int, inode: int = 0, spans: str = "") -> bytes:
    """Return the line that opens a batch in a journal of this inode; like all lines it is still to be sealed."""
    opening = {"version": _VERSION, "epoch": epoch, "first": first, "inode": inode}
    return _line(opening | {"spans": spans})


def encode_images(images: Iterable[PreImage]) -> bytes:
    """Return the lines that announce files."""
    return b"".join(
        _line(
            {
                "name": i.name,
                "length": i.length,
                "number": i.number,
                "moment": i.moment,
                "inode": i.inode,
            }
        )
        for i in images
    )


def encode_end(until: int, spans: str = "") -> bytes:
    """Return the line that closes a batch: every file of it is on disk."""
    return _line({"until": until, "spans": spans})


def sealed(lines: bytes, seal: int = 0) -> tuple[bytes, int]:
    """Return lines as they are written, and the seal that the next ones of the batch go on from; a batch begins at 0."""
    whole = bytearray()
    for line in lines.splitlines():
        seal = crc32(line, seal)
        whole += b"%b %08x\n" % (line, seal)
    return bytes(whole), seal


def decode(data: bytes) -> Batch | None:
    """Return the last batch; None for an empty journal. Raises `DamagedJournal`.

    A last line without its newline was being written when we died: nothing that it announces was done, so it does
    not count.
    """
    whole = data[: data.rfind(b"\n") + 1]
    opening = max(whole.rfind(_OPENING), 0)  # what stands before the last batch is history
    last = _read_all(_unsealed(whole[opening:], data[len(whole) :]))
    if last is None:
        return None
    return Batch(
        *(last.epoch, last.first, last.until, tuple(last.images), last.inode),
        last.spans_before,
        last.spans,
    )


def _unsealed(lines: bytes, torn: bytes) -> list[bytes]:
    """Return the lines of a batch without their seals; `torn` is what stands behind them. Raises `DamagedJournal`."""
    _refuse_harmed_end(torn, 0)  # a batch begins there
    version = _WRITTEN_BY.match(lines)
    if version and int(version[1]) != _VERSION:
        raise DamagedJournal(f"it is of version {int(version[1])}; this program reads {_VERSION}")
    seal, found = 0, []
    for number, line in enumerate(lines.splitlines(), 1):
        text, written = line[:-_SEAL], line[-_SEAL:]
        seal = crc32(text, seal)
        if written != b" %08x" % seal:
            raise DamagedJournal(f"line {number} of its last batch is unreadable: not as written")
        found.append(text)
    _refuse_harmed_end(torn, seal)
    return found


def _refuse_harmed_end(torn: bytes, seal: int) -> None:
    if torn[-_SEAL - 1 : -1] == b" %08x" % crc32(torn[: -_SEAL - 1], seal):
        raise DamagedJournal("the end of its last line is not as written")


def _read_all(lines: Iterable[bytes]) -> "_Reading | None":
    last: _Reading | None = None
    for number, line in enumerate(lines, 1):
        try:
            last = _read(last, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedJournal(
                f"line {number} of its last batch is unreadable: {error}"
            ) from error
    return last


@dataclass(slots=True)
class _Reading:
    epoch: int
    first: int
    inode: int
    images: list[PreImage] = field(default_factory=list)
    until: int | None = None
    spans_before: str = ""
    spans: str = ""


def _read(last: _Reading | None, entry: dict[str, object]) -> _Reading:
    match entry:
        case {
            "version": int(),
            "epoch": int(epoch),
            "first": int(first),
            "inode": int(inode),
            "spans": str(spans),
        }:
            return _Reading(epoch, first, inode, spans_before=spans)
        case {
            "name": str(name),
            "length": int() | None as length,
            "number": int(number),
            "moment": int(moment),
            "inode": int(inode),
        } if last:
            last.images.append(PreImage(name, length, number, moment, inode))
            return last
        case {"until": int(until), "spans": str(spans)} if last:
            last.until, last.spans = until, spans
            return last
    raise ValueError(f"unexpected entry {entry!r}")


def _line(entry: dict[str, object]) -> bytes:
    return _encode(entry).encode() + b"\n"
