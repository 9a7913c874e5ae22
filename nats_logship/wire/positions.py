"""The positions of a host: the next byte to ship of each file, and the messages that they cover.

A value, and its encoding as a snapshot in the bucket LOGS_POSITIONS. Positions move only over
messages that are in the stream. A snapshot saves reading all headers again, and holds files of
which no line was shipped yet.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

import msgspec
import zstandard

from nats_logship.wire.message import (
    Identity,
    Origin,
    Rest,
    Span,
    Unit,
    decompress,
    quote_path,
    unquote_path,
)
from nats_logship.wire.streams import STREAM

_LARGE = 64 * 1024  # bytes of JSON to compress; `nats kv get` shows smaller ones
_MAX_BYTES = 64 * 1024 * 1024  # of JSON, decompressed: more than fits into a message, compressed
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class UnreadablePositions(ValueError):
    """The snapshot is damaged, or another program has written it."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a file, and the facts by which the shipper recognises the file."""

    file: str  # the file id, which the file keeps when it is renamed
    path: str  # where the file was last
    offset: int  # the next byte to ship
    identity: Identity  # its tail ends at `offset`
    seen: int  # when the file was last read, in nanoseconds since the epoch
    ended: bool = False  # the file was rotated away or deleted, and read to its end
    unit: Unit = "bytes"  # what `offset` counts
    rest: Rest = ""  # what becomes of the record or line that `offset` is inside of


@dataclass(frozen=True, slots=True)
class Covered:
    """The last message of the host in a stream that positions cover, and the agent that sent it."""

    sequence: _Natural
    agent: str


@dataclass(frozen=True, slots=True)
class Positions:
    """The cursors by file id, and the last message of the host in each stream that they cover.

    If a stream has no such message, it was recreated, restored or purged: read all of its headers.
    `version` is the version of the shipper that wrote the snapshot, only for people.
    """

    files: Mapping[str, Cursor] = field(default_factory=dict)
    covered: Mapping[str, Covered] = field(default_factory=dict)
    version: str = ""

    def advance(
        self, origins: Iterable[Origin], sequence: int, stream: str = STREAM
    ) -> "Positions":
        """Return the positions after stored messages, the last one at `sequence` (0: not known).

        No position moves back: a file id never has a lower offset again, so reading an old message
        twice changes nothing.
        """
        files, agent = dict(self.files), ""
        for origin in origins:
            agent = origin.agent
            for one in origin.sections:
                name, end = one.span.file_id, one.span.end
                is_ahead = name not in files or files[name].offset < end
                if one.identity is not None and is_ahead:  # without one the file cannot be read on
                    files[name] = Cursor(
                        file=name,
                        path=one.path,
                        offset=end,
                        identity=one.identity,
                        seen=origin.read_at,
                        unit=one.unit,
                        rest=one.rest,
                    )
        last = {stream: Covered(sequence, agent)} if sequence else {}
        return replace(self, files=files, covered={**self.covered, **last})

    def merge(self, saved: "Positions") -> "Positions":
        """Return the positions with the cursors of `saved` that are ahead."""
        ahead = {
            name: cursor
            for name, cursor in saved.files.items()
            if name not in self.files or self.files[name].offset < cursor.offset
        }
        return replace(self, files={**self.files, **ahead}) if ahead else self

    def started_files(self) -> set[str]:
        """Return the ids of files that were shipped in part, or are read from their end."""
        return {name for name, cursor in self.files.items() if cursor.offset}

    def with_starts(self, starts: Iterable[Cursor]) -> "Positions":
        """Return the positions with exactly these files beside those that are started.

        The stream does not know a file before its first line: only these cursors find the file
        again if it is renamed during a crash.
        """
        started = {name: cursor for name, cursor in self.files.items() if cursor.offset}
        files = {**{start.file: start for start in starts}, **started}
        return self if files == self.files else replace(self, files=files)

    def with_ended(self, ended: Container[str], alive: Container[str]) -> "Positions":
        """Return the positions with the file ids `ended` marked so, and `alive` no more."""
        changed = {
            name: replace(cursor, ended=name in ended)
            for name, cursor in self.files.items()
            if (name in ended and not cursor.ended) or (cursor.ended and name in alive)
        }
        return replace(self, files={**self.files, **changed}) if changed else self

    def without(self, files: Iterable[str]) -> "Positions":
        """Return the positions without some file ids."""
        gone = set(files)
        return replace(self, files={n: one for n, one in self.files.items() if n not in gone})

    def encode(self) -> bytes:
        """Return the snapshot: JSON, as a zstd frame if it is large."""
        document = _Document(
            version=self.version,
            streams=dict(self.covered),
            files=[_encode_cursor(cursor) for cursor in self.files.values()],
        )
        data = msgspec.json.encode(document)
        return data if len(data) < _LARGE else zstandard.compress(data, 1)

    @classmethod
    def decode(cls, data: bytes) -> "Positions":
        """Read a snapshot; raises `UnreadablePositions`."""
        try:
            if data.startswith(zstandard.FRAME_HEADER):
                data = decompress(data, _MAX_BYTES)
            document = _documents.decode(data)
            cursors = map(_decode_cursor, document.files)
            return cls(
                {cursor.file: cursor for cursor in cursors}, document.streams, document.version
            )
        except (ValueError, RecursionError) as error:
            raise UnreadablePositions(f"{type(error).__name__}: {error}") from error


class _Entry(msgspec.Struct, omit_defaults=True):
    """A file as the snapshot has it; unknown fields are passed over."""

    id: str
    path: str
    offset: _Natural
    identity: str
    seen: _Natural
    ended: bool = False
    unit: Unit = "bytes"
    rest: Rest = ""


class _Document(msgspec.Struct, kw_only=True):
    """The snapshot. A host wrote it: decoding ends at the first value of another type."""

    version: str = ""
    streams: dict[str, Covered]
    files: list[_Entry]


_documents = msgspec.json.Decoder(_Document)


def _encode_cursor(cursor: Cursor) -> _Entry:
    return _Entry(
        id=cursor.file,
        path=quote_path(cursor.path),
        offset=cursor.offset,
        identity=str(cursor.identity),
        seen=cursor.seen,
        ended=cursor.ended,
        unit=cursor.unit,
        rest=cursor.rest,
    )


def _decode_cursor(entry: _Entry) -> Cursor:
    path = unquote_path(entry.path)
    if "\0" in path:
        raise ValueError("not the path of a file")
    return Cursor(
        file=Span(entry.id, 0, entry.offset).file_id,  # checks the id as a message does
        path=path,
        offset=entry.offset,
        identity=Identity.parse(entry.identity),
        seen=entry.seen,
        ended=entry.ended,
        unit=entry.unit,
        rest=entry.rest,
    )
