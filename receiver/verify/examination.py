"""Compares the files of a partition with the stream: each by digest and, where that differs, by its lines. Reads only.

The store says what was received before which message, and how many bytes each file has of it. The stream is read once for
all hosts; what each file should have is kept as a length and a digest. Only a file whose newest bytes are others is
read once more, alone, and compared line by line.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from receiver.consume.judging import Endings, Piece
from receiver.replay.reading import Reader, Run
from receiver.replay.survey import Span, StreamSpan
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names
from receiver.storage.store import Store
from receiver.verify.comparison import Bytes, Counts, Tally, lines_of
from receiver.verify.received import LiveFile, Part, Snapshot, snapshot
from receiver.zones import named_zone

__all__ = ["Examination", "Examined", "FileReport", "Order"]

_ALL = 2**62  # bytes
_LOOKS, _AGAIN = 20, 0.1  # at a file that is rotated or removed meanwhile, and seconds between


@dataclass(frozen=True, slots=True)
class Order:
    """What is compared; hosts that `moved` are left out: a partition does not know what others have written to their files."""

    output: Path
    reader: Reader
    path_template: str
    time_zone: str
    moved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FileReport:
    """A host's file: `size` bytes were compared, the oldest `pruned` ones are no longer kept, `counts` are wrong lines.

    `live` is its path below the output folder, `first` the place of the first difference. `holes` are the numbers of
    closed segments that are not there although older ones are, where lines are missing.
    """

    partition: int
    host: str
    live: str
    size: int
    pruned: int
    counts: Counts
    first: str = ""
    holes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    """A partition that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    reports: tuple[FileReport, ...]


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


class Examination:
    """One partition, of which a span of the stream is compared with its files, up to what the store has received."""

    def __init__(self, order: Order, partition: int, store: Store, span: StreamSpan) -> None:
        """Look at nothing yet."""
        self._order = order
        self._partition = partition
        self._store = store
        self._span = span
        self._layout = Layout(order.path_template)

    def run(self, passed: Callable[[int], None]) -> Examined:
        """Compare; `passed` is told how many sequences were read. Raises OSError, `Damaged`, and others."""
        seen = self._snapshot()
        expected: dict[str, _Expected] = {}
        refused = 0
        naming = self._naming()
        for run in self._order.reader.span(Span((self._partition,), (self._until(seen),))):
            refused += len(run.refused)
            for live, piece, lines in naming(run):
                if (one := expected.get(live)) is None:
                    one = expected[live] = _Expected(piece.host)
                one.length += len(lines)
                one.digest.update(lines)
            passed(run.passed)
        reports = [
            report
            for live, one in sorted(expected.items())
            if not self._fits(seen.files.get(live, LiveFile(())), one)
            if (report := self._report(live, one.host)).counts.total or report.pruned
        ]
        size = sum(one.length for one in expected.values())
        hosts = len({one.host for one in expected.values()})
        return Examined(self._partition, hosts, size, refused, tuple(reports))

    def _snapshot(self, path: str = "") -> Snapshot:
        seen = snapshot(self._store, path)
        assert seen is not None, "something was received"
        return seen

    def _until(self, seen: Snapshot) -> StreamSpan:
        return replace(
            self._span, until=seen.until
        )  # more than there was when the span was asked for

    def _naming(self) -> Callable[[Run], Iterator[tuple[str, Piece, bytes]]]:
        """Return what yields the live file of each piece, and its lines as they stand there; of hosts that moved none."""
        days = Days(named_zone(self._order.time_zone))
        names = Names(self._store, self._layout, days, self._partition)
        endings = Endings()

        def named(run: Run) -> Iterator[tuple[str, Piece, bytes]]:
            for piece in run.pieces:
                if piece.host not in self._order.moved:
                    file, is_own = piece.file or None, piece.file_id != ""
                    live = names.live_name(piece.host, file, piece.stored_at, is_own=is_own)
                    yield live, piece, endings.joined(live, piece)

        return named

    def _fits(self, file: LiveFile, expected: _Expected) -> bool:
        """Whether the newest bytes are the expected ones, to the last."""
        digest = hashlib.blake2b(digest_size=16)
        try:
            parts = self._counted(file.parts)
            skipped = sum(length for _, length in parts) - expected.length
            if skipped < 0:
                return False
            for part, length in parts:
                if skipped >= length:
                    skipped -= length
                    continue
                received = Bytes(part.pieces(self._order.output))
                deque(received.take(skipped), 0)
                for piece in received.take(length - skipped):
                    digest.update(piece)
                if not received.is_over:
                    return False
                skipped = 0
        except FileNotFoundError:  # rotated meanwhile, or removed: the closer look tells
            return False
        return digest.digest() == expected.digest.digest()

    def _counted(self, parts: tuple[Part, ...]) -> list[tuple[Part, int]]:
        output = self._order.output
        return [
            (part, sum(map(len, part.pieces(output))) if part.length is None else part.length)
            for part in parts
        ]

    def _report(self, live: str, host: str) -> FileReport:
        """Return what differs in a file, read line by line; again while it is rotated, or undone, meanwhile."""
        for _ in range(_LOOKS):
            before = self._snapshot(live)
            report = self._look(live, host, before)
            after = self._snapshot(live)
            names = _names(after, live)
            is_same = names is not None and names == _names(before, live)
            is_same &= after.until >= before.until
            if not report.counts.total or is_same:
                break
            time.sleep(_AGAIN)
        return report

    def _look(self, live: str, host: str, seen: Snapshot) -> FileReport:
        file = seen.files.get(live, LiveFile(()))
        day = self._layout.date_of(live)
        is_pruned = file.is_pruned or (not file.parts and "" < day < seen.last_day)
        parts = [(part, self._length(part)) for part in file.parts]
        expected = sum(map(len, self._expected(live, host, seen)))
        ahead = expected - sum(length for _, length in parts)
        ours, tally, first = Bytes(self._expected(live, host, seen)), Tally(), ""
        if ahead > 0 and is_pruned:
            deque(ours.take(ahead), 0)
        elif ahead > 0:
            tally.compare(lines_of(ours.take(ahead)), ())
            first = parts[0][0].path if parts else "no file"
        skipped = max(0, -ahead)
        for part, length in parts:
            if skipped >= length:
                skipped -= length
                continue
            found = self._compared(tally, part, skipped, ours.take(length - skipped))
            if found is not None and not first:
                first = f"{part.path} at byte {found + skipped}"
            skipped = 0
        counts = tally.counts
        pruned = max(ahead, 0) if is_pruned else 0
        holes = file.holes if counts.missing else ()
        return FileReport(
            *(self._partition, host, live, expected - pruned, pruned, counts),
            first=first if counts.total else "",
            holes=holes,
        )

    def _compared(
        self, tally: Tally, part: Part, skipped: int, expected: Iterator[bytes]
    ) -> int | None:
        """Compare a part from a byte on with what is expected there, which is all missing where the part is not there."""
        try:
            received = Bytes(part.pieces(self._order.output))
            if (
                skipped or not received.is_over
            ):  # which opens the file, before a line is expected of it
                deque(received.take(skipped), 0)
        except FileNotFoundError:
            tally.compare(lines_of(expected), ())
            return 0
        return tally.compare(lines_of(expected), lines_of(received.take(_ALL)))

    def _length(self, part: Part) -> int:
        try:
            return self._counted((part,))[0][1]
        except FileNotFoundError:
            return 0

    def _expected(self, live: str, host: str, seen: Snapshot) -> Iterator[bytes]:
        """Yield what a file should have of the stream."""
        naming = self._naming()
        for run in self._order.reader.host(self._partition, host, self._until(seen)):
            for name, _, lines in naming(run):
                if name == live:
                    yield lines


def _names(seen: Snapshot, live: str) -> list[str] | None:
    """Return the names of a file's parts, None while these change."""
    file = seen.files.get(live, LiveFile(()))
    return None if file.is_changing else [part.path for part in file.parts]
