"""Compares the files of one partition with the stream.

The stream is read once for all hosts; only length and digest of what each file should have are
kept. A file with another digest is compared with the stream once more, alone and byte by byte.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from nats_logship.app.exits import OperatorError
from nats_logship.app.progress import Advance
from nats_logship.client import bucket
from nats_logship.client.connection import ELECTION, ask_broker
from nats_logship.client.ranges import SequenceRange
from nats_logship.wire.endings import Endings
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.streams import OFFSETS_BUCKET, offset_key
from receiver.consume.judging import Piece
from receiver.replay.lines import read_lines
from receiver.settings import StreamSettings
from receiver.storage.damage import Damaged
from receiver.storage.layout import Days
from receiver.storage.live_paths import LivePaths
from receiver.storage.recovery import find_first_to_undo
from receiver.storage.rotation import load_zone
from receiver.verify.files import CHUNK, Files, Part, ReceivedFile
from receiver.verify.line_counts import LineCounts
from receiver.verify.report import DifferingFile

PROGRAM = "logreceiver verify"
_ATTEMPTS = 20  # to compare a file that changes meanwhile
_PAUSE = 0.1  # seconds between them


@dataclass(slots=True)
class Lines:
    """Lines of a host that are digested; `is_own` if its shipper sent all of them."""

    host: str
    length: int = 0
    is_own: bool = True
    _hash: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def add(self, data: bytes) -> None:
        """Add some lines."""
        self.length += len(data)
        self._hash.update(data)

    @property
    def digest(self) -> bytes:
        """The digest of all lines."""
        return self._hash.digest()


@dataclass(frozen=True, slots=True)
class PartitionComparison:
    """A partition whose files have all its messages in `item` before sequence `until`.

    `moved` are ranges of other partitions, for a host that has moved from there. The methods raise
    OSError, `Damaged`, and what `read_lines` raises.
    """

    settings: StreamSettings
    partition: int
    files: Files
    item: SequenceRange
    until: int
    moved: tuple[SequenceRange, ...] = ()

    def range_of(self, host: str, until: int) -> SequenceRange:
        """Return the range of a host's lines before a sequence; `>` is every host."""
        return replace(self.item, subject=f"logs.p{self.partition}.{host}", until=until)

    def sum_lines(
        self, host: str, until: int, advance: Advance = lambda _: None
    ) -> dict[str, Lines]:
        """Return what the stream has for each live file before a sequence; `>` is every host."""
        expected: dict[str, Lines] = {}
        for live, piece, lines in self._read_lines(host, until, advance):
            one = expected.setdefault(live, Lines(piece.host))
            one.add(lines)
            one.is_own &= piece.file_id != ""
        return expected

    def compare(self, expected: Mapping[str, Lines]) -> list[DifferingFile]:
        """Return the files that differ from what the stream has for them."""
        compared = (self._compare_file(live, one) for live, one in sorted(expected.items()))
        return [one for one in compared if one]

    def _read_lines(
        self, host: str, until: int, advance: Advance = lambda _: None
    ) -> Iterator[tuple[str, Piece, bytes]]:
        """Yield lines of the stream with their live file, as a receiver writes them."""
        zone = load_zone(self.settings.time_zone)
        paths = LivePaths(self.files.store, self.files.layout, Days(zone), self.partition)
        endings = Endings()
        ranges = [self.range_of(host, until), *self.moved]
        for run in read_lines(self.settings, ranges, advance):
            for piece in run.pieces:
                file, is_own = piece.file or None, piece.file_id != ""
                live = paths.choose(piece.host, file, piece.stored_at, is_own=is_own)
                yield live, piece, piece.join(endings, live)

    def _compare_file(self, live: str, expected: Lines) -> DifferingFile | None:
        """Return how a file differs; None if it does not.

        A file may be rotated or its last batch undone, and messages may leave the stream, while
        they are read. So a difference counts if the next attempt finds file and stream unchanged.
        """
        until, undone = self.until, ""
        difference: DifferingFile | None = None
        seen: tuple[object, ...] = ()
        for _ in range(_ATTEMPTS):
            file, found = self.files.find(live, undone), Lines(expected.host)
            if difference or file.until != until:
                until = file.until
                expected = self.sum_lines(expected.host, until).get(live, Lines(expected.host))
            for part, older in file.list_newest(expected.length):
                for chunk in self.files.read(part, older):
                    found.add(chunk)
            if found.digest == expected.digest:
                return None
            difference = self._describe_difference(live, file, expected)
            before, seen = seen, (undone, file, expected.digest)
            if difference is None or before == seen:
                break
            undone = self._find_undone()
            time.sleep(_PAUSE)
        return difference

    def _find_undone(self) -> str:
        """Return the commit id of the last batch if it is not committed; else an empty text.

        A receiver may be undoing this batch.
        """
        batch, key = self.files.store.read_batch(), offset_key(self.partition)
        assert batch is not None, "the store was opened with a batch"
        # that's fine: without an answer the batch counts as committed
        with suppress(OperatorError, UnreadableOffset, Damaged):
            read = partial(bucket.read, bucket=OFFSETS_BUCKET, key=key)
            entry = ask_broker(self.settings, PROGRAM, read, ELECTION)
            offset = Offset.decode(entry.value) if entry else None
            if offset and find_first_to_undo(batch, offset, self.partition) <= batch.number:
                return batch.commit_id
        return ""

    def _describe_difference(
        self, live: str, file: ReceivedFile, expected: Lines
    ) -> DifferingFile | None:
        """Return how a file differs; None if only older segments are gone that are not kept."""
        found = self._read_lines(expected.host, file.until)
        take = _make_taker(lines for path, _, lines in found if path == live)
        absent = max(0, expected.length - sum(part.length for part in file.parts))
        if file.is_cleaned:
            for begin in range(0, absent, CHUNK):
                take(min(CHUNK, absent - begin))
        counts, first = self._compare_lines(take, file, expected.length)
        if absent and not file.is_cleaned:
            first = Difference([*file.parts, Part(live, 0)][0], 0)
        if first is None:
            return None
        return DifferingFile(
            partition=self.partition,
            host=expected.host,
            live=live,
            expected=counts.expected,
            received=counts.received,
            same=counts.same,
            path=first.part.path,
            line=self._number_line(first),
            byte=first.byte,
        )

    def _compare_lines(
        self, take: Callable[[int], bytes], file: ReceivedFile, size: int
    ) -> "tuple[LineCounts, Difference | None]":
        """Compare the newest `size` bytes of a file with those of `take`.

        Returns how many lines are the same, and the first difference, None if there is none.
        """
        counts, first = LineCounts(), None
        for part, at in file.list_newest(size):
            for theirs in self.files.read(part, at):
                ours = take(min(len(theirs), part.length - at))
                if first is None and ours != theirs:
                    first = Difference(part, at + _count_equal(ours, theirs))
                counts.add(ours, theirs)
                at += len(theirs)
            if first is None and at < part.length:
                first = Difference(part, at)
            while ours := take(min(CHUNK, part.length - at)):
                counts.add(ours, b"")
                at += len(ours)
            counts.end_file()
        while ours := take(CHUNK):
            counts.add(ours, b"")
        return counts, first

    def _number_line(self, first: "Difference") -> int:
        """Return the number of the line of a byte, from 1."""
        number, left = 1, first.byte
        for chunk in self.files.read(first.part):
            number += chunk[:left].count(b"\n")
            if (left := left - len(chunk)) <= 0:
                break
        return number


class Difference(NamedTuple):
    """A byte of a part."""

    part: Part
    byte: int


def _count_equal(one: bytes, other: bytes) -> int:
    """Return how many bytes are the same from the start on."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _make_taker(pieces: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return a function that takes as many bytes from the pieces as asked, or as are left."""
    rest = bytearray()

    def take(size: int) -> bytes:
        while len(rest) < size and (piece := next(pieces, b"")):
            rest.extend(piece)
        taken = bytes(rest[: max(0, size)])
        del rest[: len(taken)]
        return taken

    return take
