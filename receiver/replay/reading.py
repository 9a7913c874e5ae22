"""Reads lines out of the stream as a receiver would have written them; moves no offset and makes no consumer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from broker.app.selection import Selection
from broker.client.access import Access
from broker.wire.message import MAX_LINES_BYTES, MalformedMessage
from broker.wire.streams import STREAM
from broker.wire.subjects import InvalidHost, InvalidSubject, partition_filter
from receiver.consume import background
from receiver.consume.judging import Judge, Piece
from receiver.replay.tasks import Unit
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.stored import Stored

__all__ = ["Counts", "Reader", "Refused", "Run"]

_MOST_HELD = MAX_LINES_BYTES
"""Bytes of lines that a run holds before it ends: a few KiB of zstd may decompress to a thousand times as much."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was read: `size` in bytes of lines, `refused` messages without lines, `findings` gaps and repeats of files."""

    lines: int = 0
    size: int = 0
    refused: int = 0
    findings: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Return both together."""
        return Counts(
            self.lines + other.lines,
            self.size + other.size,
            self.refused + other.refused,
            self.findings + other.findings,
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that holds no lines that could be written, and why."""

    message: Stored
    reason: str

    @property
    def partition(self) -> int:
        """The partition that its subject names."""
        return int(_partition_of(self.message).removeprefix("p"))

    @property
    def stored_at(self) -> int:
        """When it was stored, in nanoseconds since the epoch."""
        return _nanoseconds(self.message)


@dataclass(frozen=True, slots=True)
class Run:
    """Lines in their order, and the messages among them that were refused; `until` is the sequence that follows."""

    until: int
    pieces: tuple[Piece, ...]
    refused: tuple[Refused, ...]
    findings: int

    @property
    def counts(self) -> Counts:
        """What it holds."""
        lines = sum(piece.payload.count(b"\n") for piece in self.pieces)
        size = sum(len(piece.payload) for piece in self.pieces)
        return Counts(lines, size, len(self.refused), self.findings)


@dataclass(frozen=True, slots=True)
class Reader:
    """How to reach the stream, and which hosts and files are wanted of it."""

    servers: tuple[str, ...]
    access: Access
    selection: Selection

    def unit(self, unit: Unit, host: str = "") -> Iterator[Run]:
        """Yield the lines of a unit in order; with `host` the broker sends the messages of that host alone.

        A run is of about 8 MiB as stored or 16 MiB of lines. What retention has removed is left out. Raises what
        `reread.read` raises.
        """
        subject = f"logs.p{unit.partition}.{host}" if host else partition_filter(unit.partition)
        item = Range(subject, unit.first, unit.until)
        return self._runs(item, lambda message: unit.has(_host_of(message)))

    def partitions(self, partitions: Sequence[int], first: int, until: int) -> Iterator[Run]:
        """Yield the lines of partitions in the order in which the broker stored them, as `unit` does."""
        wanted = {f"p{number}" for number in partitions}
        subject = partition_filter(partitions[0]) if len(partitions) == 1 else "logs.>"
        item = Range(subject, first, until)
        return self._runs(item, lambda message: _partition_of(message) in wanted)

    def _runs(self, item: Range, wants: Callable[[Stored], bool]) -> Iterator[Run]:
        connection = background.connection(self.servers, self.access)
        judge = Judge(wants=self.selection.wants_file)
        for messages in read(connection, STREAM, item, fail=False):
            pieces: list[Piece] = []
            refused: list[Refused] = []
            size, before = 0, judge.found
            for message in messages:
                if wants(message) and self.selection.wants_host(_host_of(message)):
                    try:
                        found = _pieces(judge, message)
                    except (MalformedMessage, InvalidHost, InvalidSubject) as error:
                        refused.append(Refused(message, str(error)))
                    else:
                        pieces += found
                        size += sum(len(piece.payload) for piece in found)
                if size >= _MOST_HELD or message is messages[-1]:
                    findings = judge.found - before
                    yield Run(message.sequence + 1, tuple(pieces), tuple(refused), findings)
                    pieces, refused = [], []
                    size, before = 0, judge.found


def _pieces(judge: Judge, message: Stored) -> list[Piece]:
    return judge.take(
        message.subject,
        message.headers,
        message.payload,
        message.sequence,
        _nanoseconds(message),
    )


def _host_of(message: Stored) -> str:
    return message.subject.split(".", 2)[-1]


def _partition_of(message: Stored) -> str:
    return message.subject.split(".", 2)[1]


def _nanoseconds(message: Stored) -> int:
    second, _, fraction = message.time.removesuffix("Z").partition(".")
    return _second(second) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(64)
def _second(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp())
