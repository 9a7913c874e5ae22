"""Positions: how far every file is safely stored, and up to which sequence of which stream that was learnt.

A value, and its form as a snapshot in the broker. Moves only over what the stream has; the stream is the truth, this is
what need not be read from it again, and what the stream cannot know: files of which no line was shipped yet.
"""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import zstandard

from nats_logship.wire.message import MAX_PATH_BYTES, Identity, Origin, Span, decompress
from nats_logship.wire.streams import STREAM


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next byte to ship of a file, and what recognises the file again.

    `file` is the id that stays with it through renames and restarts, `path` only where it was last seen. `offset` is
    in bytes, the next one to ship; `identity` is the file's as it was at that offset. `seen` is when it was last
    read, in nanoseconds since the epoch. `ended` says that nobody misses the file: it was rotated
    away or deleted, and read to its end, or its loss was reported.
    """

    file: str
    path: str
    offset: int
    identity: Identity
    seen: int
    ended: bool = False


_LARGE = 64 * 1024  # bytes; smaller ones stay readable for `nats kv get`
_LARGEST_NUMBER = 2**63 - 1  # of a position in a file, or nanoseconds since the epoch
_LARGEST = 256 * 1024 * 1024  # bytes, decompressed; those of a million files


class UnreadablePositions(ValueError):
    """A snapshot that no shipper of ours wrote."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The last message of the host in a stream that positions cover, and the agent that wrote it."""

    sequence: int
    agent: str


@dataclass(frozen=True, slots=True)
class Positions:
    """The next byte to ship of every file, by file id, and the last message of the host that they cover of each stream.

    A stream that was recreated, restored or has let that message expire holds no such message, and is then read from its
    beginning. `version` is that of the shipper that wrote them last, empty where that is not known; it is only shown.
    """

    files: Mapping[str, Cursor] = field(default_factory=dict)
    covered: Mapping[str, Covered] = field(default_factory=dict)
    version: str = ""

    def advance(
        self, origins: Iterable[Origin], sequence: int, stream: str = STREAM
    ) -> "Positions":
        """Return the positions behind messages that are stored, the last of them at `sequence`; never moves back.

        A `sequence` of 0 covers nothing: it is not known.
        """
        files = dict(self.files)
        agent = ""
        for origin in origins:
            agent = origin.agent
            for one in origin.sections:
                name, end = one.span.file, one.span.end
                # a file's id never comes back with a lower offset, so an older message read again changes nothing
                is_ahead = name not in files or files[name].offset < end
                if one.identity is not None and is_ahead:  # else it cannot be read again from there
                    files[name] = Cursor(name, one.path, end, one.identity, origin.read_at)
        last = {stream: Covered(sequence, agent)} if sequence else {}
        return replace(self, files=files, covered={**self.covered, **last})

    def merge(self, saved: "Positions") -> "Positions":
        """Return the positions with those of a snapshot, for the files of which it covers more."""
        ahead = {
            name: cursor
            for name, cursor in saved.files.items()
            if name not in self.files or self.files[name].offset < cursor.offset
        }
        return replace(self, files={**self.files, **ahead}) if ahead else self

    def started_files(self) -> set[str]:
        """Return the ids of the files of which something is stored, or that are read from their end on."""
        return {cursor.file for cursor in self.files.values() if cursor.offset}

    def with_starts(self, starts: Iterable[Cursor]) -> "Positions":
        """Return the positions with these files beside those that are begun, and no others.

        The stream knows nothing of a file before its first line; what was seen of it is all that finds it again, should
        it be renamed before a crash is over.
        """
        begun = {name: cursor for name, cursor in self.files.items() if cursor.offset}
        files = {**{start.file: start for start in starts}, **begun}
        return self if files == self.files else replace(self, files=files)

    def with_ended(self, ended: Container[str], alive: Container[str]) -> "Positions":
        """Return the positions with these files ended, by id, and those that are `alive` not."""
        changed = {
            name: replace(cursor, ended=name in ended)
            for name, cursor in self.files.items()
            if (name in ended and not cursor.ended) or (cursor.ended and name in alive)
        }
        return replace(self, files={**self.files, **changed}) if changed else self

    def without(self, files: Iterable[str]) -> "Positions":
        """Return the positions without some files, by id."""
        gone = set(files)
        return replace(
            self, files={name: cursor for name, cursor in self.files.items() if name not in gone}
        )

    def encode(self) -> bytes:
        """Return the snapshot: JSON, as a zstd frame where it is large."""
        document = {
            "version": self.version,
            "streams": {name: asdict(one) for name, one in self.covered.items()},
            "files": [_entry(cursor) for cursor in self.files.values()],
        }
        data = json.dumps(document, separators=(",", ":")).encode()
        return data if len(data) < _LARGE else zstandard.compress(data, 1)

    @classmethod
    def decode(cls, data: bytes) -> "Positions":
        """Read a snapshot; raises `UnreadablePositions`."""
        try:
            if data.startswith(zstandard.FRAME_HEADER):
                data = decompress(data, _LARGEST)
            document = json.loads(data)
            cursors = map(_cursor, document["files"])
            streams = document["streams"].items()
            return cls(
                {cursor.file: cursor for cursor in cursors},
                {
                    name: Covered(_natural(one["sequence"]), str(one["agent"]))
                    for name, one in streams
                },
                str(document.get("version", "")),
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise UnreadablePositions(f"{type(error).__name__}: {error}") from error


def _entry(cursor: Cursor) -> dict[str, str | int]:
    ended = {"ended": True} if cursor.ended else {}
    return {
        "id": cursor.file,
        "path": cursor.path,
        "offset": cursor.offset,
        "identity": str(cursor.identity),
        "seen": cursor.seen,
        **ended,
    }


def _cursor(entry: Mapping[str, Any]) -> Cursor:
    offset, seen = _natural(entry["offset"]), _natural(entry["seen"])
    file = Span(str(entry["id"]), 0, offset).file  # an id that a message could not carry is refused
    identity = Identity.parse(str(entry["identity"]))
    ended = entry.get("ended") is True
    return Cursor(file, _path(entry["path"]), offset, identity, seen, ended)


def _path(value: str) -> str:
    if "\0" in value or len(value.encode("utf-8", "surrogateescape")) > MAX_PATH_BYTES:
        raise ValueError("a path that no file can have")
    return value


def _natural(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_NUMBER:
        raise ValueError(f"not a number from 0 to {_LARGEST_NUMBER}")
    return value
