"""Reads a unit's lines again, as a receiver would have written them. Reads only."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from broker.block import MalformedBlock, decode_origin
from broker.connecting.access import Access
from broker.selection import Selection
from broker.subjects import InvalidHost, InvalidSubject, partition_filter
from broker.topology import STREAM
from receiver.reading import background
from receiver.replaying.units import Unit
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.stored import Stored
from receiver.writing.rebuild import Piece, Rebuilder

__all__ = ["MOST_UNFOLDED", "Reader", "Refused", "Run", "nanoseconds"]

MOST_UNFOLDED = 32 * 1024 * 1024
"""Bytes of lines that are held at once, about: a few KiB of zstd may unfold to a thousand times as much."""


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
        """Yield the unit's lines in order, in runs of about 8 MiB as stored or 32 MiB of lines; retention's removals are left out.

        With `host` the broker sends the messages of that host alone. Raises what `reread.read` raises.
        """
        connection = background.connection(self.servers, self.access)
        subject = f"logs.p{unit.partition}.{host}" if host else partition_filter(unit.partition)
        rebuilder = Rebuilder()
        for messages in read(
            connection, STREAM, Range(subject, unit.first, unit.until), fail=False
        ):
            found: list[Piece | Refused] = []
            size, before = 0, rebuilder.found
            for message in messages:
                if item := self._taken(rebuilder, message, unit):
                    found.append(item)
                    size += len(item.payload) if isinstance(item, Piece) else 0
                if size >= MOST_UNFOLDED or message is messages[-1]:
                    yield Run(
                        message.sequence + 1,
                        tuple(item for item in found if isinstance(item, Piece)),
                        tuple(item for item in found if isinstance(item, Refused)),
                        rebuilder.found - before,
                    )
                    found, size, before = [], 0, rebuilder.found

    def _taken(self, rebuilder: Rebuilder, message: Stored, unit: Unit) -> Piece | Refused | None:
        host = message.subject.split(".", 2)[-1]
        if not (unit.has(host) and self.selection.wants_host(host)):
            return None
        try:
            if self.selection.files and not self._wants_file(message):
                return None
            moment = nanoseconds(message)
            return rebuilder.take(
                message.subject, message.headers, message.payload, message.sequence, moment
            )
        except (MalformedBlock, InvalidHost, InvalidSubject) as error:
            return Refused(message, str(error))

    def _wants_file(self, message: Stored) -> bool:
        origin = decode_origin(message.headers)
        return self.selection.wants_file(origin.file if origin else "")


def nanoseconds(message: Stored) -> int:
    """Return when a message was stored, in nanoseconds since the epoch."""
    second, _, fraction = message.time.removesuffix("Z").partition(".")
    return _second(second) * 1_000_000_000 + int(fraction.ljust(9, "0"))


@lru_cache(64)
def _second(time: str) -> int:
    return int(datetime.fromisoformat(f"{time}+00:00").timestamp())
