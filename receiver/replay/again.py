"""Reads a unit's lines again, as a receiver would have written them. Reads only."""

from collections.abc import Iterator, Sequence
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
from receiver.replay.units import Unit
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.stored import Stored

__all__ = ["MOST_HELD", "Reader", "Refused", "Run", "nanoseconds", "taken"]

MOST_HELD = MAX_LINES_BYTES
"""Bytes of lines after which no further message is held: a few KiB of zstd may decompress to a thousand times as much."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that holds no lines that could be written, and why."""

    message: Stored
    reason: str

    @property
    def partition(self) -> int:
        """The partition that its subject names."""
        return int(self.message.subject.split(".", 2)[1].removeprefix("p"))


@dataclass(frozen=True, slots=True)
class Run:
    """Lines in their order, what was refused among them, and how many gaps and repeats of files were met.

    `until` is the sequence that follows.
    """

    until: int
    pieces: tuple[Piece, ...]
    refused: tuple[Refused, ...]
    findings: int


@dataclass(frozen=True, slots=True)
class Reader:
    """How to reach the stream, and what is wanted of it."""

    servers: tuple[str, ...]
    access: Access
    selection: Selection

    def runs(self, unit: Unit, host: str = "") -> Iterator[Run]:
        """Yield the unit's lines in order, in runs of about 8 MiB as stored or 16 MiB of lines; retention's removals are left out.

        With `host` the broker sends the messages of that host alone. Raises what `reread.read` raises.
        """
        connection = background.connection(self.servers, self.access)
        subject = f"logs.p{unit.partition}.{host}" if host else partition_filter(unit.partition)
        judge = Judge(wants=self.selection.wants_file)
        for messages in read(
            connection, STREAM, Range(subject, unit.first, unit.until), fail=False
        ):
            found: list[Piece | Refused] = []
            size, before = 0, judge.found
            for message in messages:
                items = self._taken(judge, message, unit)
                found += items
                size += sum(len(item.payload) for item in items if isinstance(item, Piece))
                if size >= MOST_HELD or message is messages[-1]:
                    yield Run(
                        message.sequence + 1,
                        tuple(item for item in found if isinstance(item, Piece)),
                        tuple(item for item in found if isinstance(item, Refused)),
                        judge.found - before,
                    )
                    found, size, before = [], 0, judge.found

    def _taken(self, judge: Judge, message: Stored, unit: Unit) -> Sequence[Piece | Refused]:
        host = message.subject.split(".", 2)[-1]
        if not (unit.has(host) and self.selection.wants_host(host)):
            return ()
        return taken(judge, message)


def taken(judge: Judge, message: Stored) -> Sequence[Piece | Refused]:
    """Return what a message adds to files, or that it holds no lines that could be written."""
    moment = nanoseconds(message)
    try:
        return judge.take(
            message.subject, message.headers, message.payload, message.sequence, moment
        )
    except (MalformedMessage, InvalidHost, InvalidSubject) as error:
        return (Refused(message, str(error)),)


def nanoseconds(message: Stored) -> int:
    """Return when a message was stored, in nanoseconds since the epoch."""
    second, _, fraction = message.time.removesuffix("Z").partition(".")
    return _second(second) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(64)
def _second(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp())
