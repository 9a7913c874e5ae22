"""A host whose received bytes are not the expected ones: both are read side by side, line by line. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass

from receiver.consume.judging import Endings, Piece
from receiver.replay.tasks import Unit
from receiver.storage.layout import Days, Layout
from receiver.storage.names import Names as LiveNames
from receiver.storage.position import Damaged
from receiver.storage.store import Store, path_of
from receiver.verify.compare import Side, hunks
from receiver.verify.findings import Kind, Ledger
from receiver.verify.outcome import HostReport, Order, Place
from receiver.verify.received import Received, received
from receiver.zones import named_zone

__all__ = ["Closer", "Names", "look_closer"]

_FURTHER = 16 * 1024 * 1024  # bytes further back that are looked through where lines do not fit
_HEAD = 4096
_END = 2**62  # behind whatever the stream holds
_LOOKS = 20  # at a host whose files are rotated, compressed or removed meanwhile


class Names:
    """Which live file a partition's lines are in, and how they stand there; asks the store, and changes nothing."""

    def __init__(self, order: Order, partition: int) -> None:
        """Know no host yet; where the store cannot be read, names are as they are given at first."""
        days = Days(named_zone(order.time_zone))
        try:
            self._store = Store(path_of(order.state, partition))
        except (OSError, Damaged):
            self._store = Store.in_memory()
        self._names = LiveNames(self._store, Layout(order.path_template), days, partition)
        self._endings = Endings()

    def __enter__(self) -> "Names":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()

    def live_name(self, piece: Piece) -> str:
        """Return the name of the live file that a piece goes to."""
        return self._names.live_name(piece.host, piece.file or None, piece.stored_at)

    def lines(self, live: str, piece: Piece) -> bytes:
        """Return what a piece adds to its live file, asked for in the order of the stream."""
        return self._endings.joined(live, piece)


@dataclass(frozen=True, slots=True)
class _Begin:
    """The first byte of either side to compare; `is_sure` says that both begin with the same line there."""

    expected: int
    found: int
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Closer:
    """A host's file that does not fit, read once more beside what the stream holds of it."""

    unit: Unit
    order: Order
    host: str
    live: str

    def report(self, committed: int) -> HostReport:
        """Return what differs of `committed` bytes; raises OSError when files go or get other names meanwhile."""
        forms = self.order.forms(self.live)
        with received(self.order.output, forms, committed + _FURTHER) as found:
            return self._compared(found, committed)

    def _compared(self, found: Received, committed: int) -> HostReport:
        is_pruned = found.oldest > 1 if found.oldest else self.order.keeps
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
                continue  # lines that are being written just now
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
        with Names(self.order, unit.partition) as own:
            for run in self.order.reader.unit(Unit(unit.partition, unit.first, until), self.host):
                for piece in run.pieces:
                    if own.live_name(piece) == self.live:
                        yield own.lines(self.live, piece)


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


def look_closer(closer: Closer, committed: int) -> HostReport:
    """Return what differs, looking again while files are rotated, compressed or removed; raises OSError."""
    for _ in range(_LOOKS - 1):
        try:
            return closer.report(committed)
        except FileNotFoundError:
            continue
    return closer.report(committed)
