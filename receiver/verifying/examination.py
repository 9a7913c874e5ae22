"""A task of a verification: the hosts of a unit, each by digest and, where that does not fit, line by line. Reads only.

The stream is read once for all hosts; what each of them should have is kept as a length and a digest. Only a host whose
newest received bytes are others is read once more, alone, and compared in windows.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broker.exits import OperatorError
from receiver.replaying.again import Reader
from receiver.replaying.selection import Unit
from receiver.verifying.compare import Side, hunks
from receiver.verifying.findings import Difference, Kind, Ledger
from receiver.verifying.received import Received, closed, received
from receiver.writing.layout import DEFAULT, Days, Layout
from receiver.writing.owners import KnownOwners
from receiver.writing.rebuild import Piece
from receiver.zones import named_zone

__all__ = ["Examined", "Failed", "HostReport", "Order", "Place", "examine"]

_FURTHER = 16 * 1024 * 1024  # bytes further back that are looked through where lines do not fit
_HEAD = 4096
_END = 2**62  # behind whatever the stream holds
_LOOKS = 5  # at a host whose files are rotated, compressed or removed meanwhile


@dataclass(frozen=True, slots=True)
class Order:
    """What is compared with what; `keeps` says that the receiver removes old segments, and may have removed all."""

    output: Path
    reader: Reader
    keeps: bool
    path_template: str = DEFAULT
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Place:
    """A difference, and where it is, for a person."""

    difference: Difference
    where: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """A host's file: how many bytes were compared, how many older ones it no longer holds, and what differs.

    `live` is the name of the live file.

    `holes` are the numbers of closed segments that are not there although older ones are, where lines are missing.
    """

    partition: int
    host: str
    live: str
    size: int
    pruned: int = 0
    holes: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether everything that should be there is."""
        return not self.places


@dataclass(frozen=True, slots=True)
class Examined:
    """A unit that was compared; `size` is in bytes, `refused` counts messages that hold no lines."""

    partition: int
    hosts: int
    size: int
    refused: int
    reports: tuple[HostReport, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A unit that could not be compared, and why, for a person."""

    detail: str


@dataclass(slots=True)
class _Expected:
    host: str
    length: int = 0
    digest: "hashlib.blake2b" = field(default_factory=lambda: hashlib.blake2b(digest_size=16))


def examine(unit: Unit, order: Order) -> Examined | Failed:
    """Compare the hosts of a unit, up to its `until`, which is the committed offset."""
    try:
        return _examine(unit, order)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return Failed(f"{name}{error.strerror or error}")
    except OperatorError as error:
        return Failed(str(error))


def _examine(unit: Unit, order: Order) -> Examined:
    files: dict[str, _Expected] = {}
    names = _Names(order, unit.partition)
    refused = 0
    for run in order.reader.runs(unit):
        refused += len(run.refused)
        for piece in run.pieces:
            live = names.live_name(piece)
            if (expected := files.get(live)) is None:
                expected = files[live] = _Expected(piece.host)
            expected.length += len(piece.payload)
            expected.digest.update(piece.payload)
    segments = closed(order.output)
    reports = []
    for live, expected in sorted(files.items()):
        if not _fits(order.output, live, segments.get(live, {}), expected):
            closer = _Closer(unit, order, expected.host, live, names)
            report = _patiently(closer, expected.length)
            if report.places or report.pruned:
                reports.append(report)
    size = sum(expected.length for expected in files.values())
    hosts = len({expected.host for expected in files.values()})
    return Examined(unit.partition, hosts, size, refused, tuple(reports))


class _Names:
    """Which live file a partition's lines are in; asks the register of owners, and changes nothing."""

    def __init__(self, order: Order, partition: int) -> None:
        """Know no host yet."""
        days = Days(named_zone(order.time_zone))
        self._owners = KnownOwners(order.output, partition, Layout(order.path_template), days)

    def live_name(self, piece: Piece) -> str:
        """Return the name of the live file that a piece goes to."""
        return self._owners.live_name(piece.host, piece.file or None, piece.stored_at)


def _patiently(closer: "_Closer", committed: int) -> HostReport:
    for _ in range(_LOOKS - 1):
        try:
            return closer.report(committed)
        except FileNotFoundError:
            continue
    return closer.report(committed)


def _fits(folder: Path, live: str, names: dict[int, str], expected: _Expected) -> bool:
    """Whether the newest bytes are the expected ones, to the last."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        found = received(folder, live, names, expected.length)
        start = found.length - expected.length
        if start < 0:
            return False
        for piece in found.pieces(start):
            digest.update(piece)
    except FileNotFoundError:  # rotated meanwhile: the closer look finds it
        return False
    return digest.digest() == expected.digest.digest()


@dataclass(frozen=True, slots=True)
class _Begin:
    """The first byte of either side to compare; `is_sure` says that both begin with the same line there."""

    expected: int
    found: int
    is_sure: bool


@dataclass(frozen=True, slots=True)
class _Closer:
    unit: Unit
    order: Order
    host: str
    live: str
    names: _Names

    def report(self, committed: int) -> HostReport:
        names = closed(self.order.output).get(self.live, {})
        found = received(self.order.output, self.live, names, committed + _FURTHER)
        is_pruned = min(names) > 1 if names else self.order.keeps
        begin = self._begin(found, committed)
        expected = Side(
            _after(self._pieces(beyond=True), begin.expected), committed, begin.expected
        )
        there = Side(found.pieces(begin.found), found.length, begin.found)
        ledger, pruned, older = Ledger(), begin.expected if is_pruned else 0, begin.found
        if not is_pruned:
            for line in _lines(_first(self._pieces(beyond=False), begin.expected)):
                ledger.note((line,), (), 0)
        for hunk in hunks(expected, there, begin.is_sure):
            missing = _committed(hunk.missing, hunk.expected_at, committed)
            extra = hunk.extra
            if hunk.is_front:
                older = hunk.found_at + sum(map(len, extra))
                extra = ()
                if is_pruned:
                    pruned += sum(map(len, missing))
                    missing = ()
            if hunk.expected_at >= committed and _is_begun(hunk.missing, extra):
                continue  # a block that is being written just now
            ledger.note(missing, extra, hunk.found_at)
        self._settle(ledger, found, older)
        places = tuple(Place(item, found.place(item.position)) for item in ledger.differences())
        is_missing = any(place.difference.kind is Kind.MISSING for place in places)
        return HostReport(
            self.unit.partition,
            self.host,
            self.live,
            committed - pruned,
            pruned,
            found.holes if is_missing else (),
            places,
        )

    def _begin(self, found: Received, committed: int) -> _Begin:
        """Return where to begin: so far from the ends that both sides are as long as the shorter, if they agree there.

        They do where damage has changed no lengths, and where the oldest segments are gone; any other place is found
        line by line.
        """
        start = found.length - committed
        begin = _Begin(max(0, -start), max(0, start), is_sure=True)
        ours = _head(_after(self._pieces(beyond=False), begin.expected))
        agree = _head(found.pieces(begin.found)) == ours
        return begin if agree else _Begin(0, 0, is_sure=False)

    def _settle(self, ledger: Ledger, found: Received, older: int) -> None:
        ledger.settle_moved()
        if ledger.has_missing:
            ledger.settle_older(_lines(_first(found.pieces(0), older)))
        if ledger.has_extra:
            ledger.settle_expected(_lines(self._pieces(beyond=True)))

    def _pieces(self, beyond: bool) -> Iterator[bytes]:
        """Yield what the host should have; `beyond` what is committed, too, as it may have been written since."""
        unit = self.unit
        until = _END if beyond else unit.until
        for run in self.order.reader.runs(Unit(unit.partition, unit.first, until), self.host):
            for piece in run.pieces:
                if self.names.live_name(piece) == self.live:
                    yield piece.payload


def _committed(lines: tuple[bytes, ...], at: int, committed: int) -> tuple[bytes, ...]:
    kept = []
    for line in lines:
        if at >= committed:
            break
        kept.append(line)
        at += len(line)
    return tuple(kept)


def _is_begun(expected: tuple[bytes, ...], there: tuple[bytes, ...]) -> bool:
    return b"".join(expected).startswith(b"".join(there))


def _head(pieces: Iterator[bytes]) -> bytes:
    return b"".join(_first(pieces, _HEAD))


def _after(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        if size < len(piece):
            yield piece[size:] if size else piece
        size = max(0, size - len(piece))


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        if size <= 0:
            return
        yield piece[:size]
        size -= len(piece)


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest
