"""Positions: how far every file is safely stored, and the stream sequence up to which that was learnt.

A value and its form on disk. Moves only over what the stream has; the stream is the truth, this is what need not be
read from it again.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from broker.block import Identity, Origin
from broker.checksum import closed, is_intact
from shipper.cursor import Cursor, after
from shipper.forgetting import forgettable

__all__ = ["Positions", "PositionsUnreadable"]

_VERSION = 1


class PositionsUnreadable(ValueError):
    """A positions file that is damaged, or of another version of this program."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The next byte to ship of every file, by file id, as of a message of the own subject.

    `sequence` is that message's (0: none) and `agent` who wrote it: a stream that was recreated, restored or has let
    the message expire holds no such message, and is then read from its beginning.
    """

    sequence: int = 0
    agent: str = ""
    files: Mapping[str, Cursor] = field(default_factory=dict)

    def advance(self, origins: Iterable[Origin], sequence: int) -> "Positions":
        """Return the positions behind blocks that are stored, the last of them at `sequence`; never moves back."""
        files = dict(self.files)
        agent = self.agent
        for origin in origins:
            agent = origin.agent
            cursor = after(origin)
            if cursor is None:
                continue
            # a file's id never comes back with a lower offset, so an older block read again changes nothing
            known = files.get(cursor.file)
            if known is None or known.shipped < cursor.offset:
                files[cursor.file] = cursor
        return Positions(sequence, agent, files)

    def begun(self) -> set[str]:
        """Return the ids of the files of which something is stored, or that are read from their end on."""
        return {cursor.file for cursor in self.files.values() if cursor.offset}

    def found(self, starts: Iterable[Cursor]) -> "Positions":
        """Return the positions with these files beside those that are begun, and no others.

        The stream knows nothing of a file before its first line; what was seen of it is all that finds it again, should
        it be renamed before a crash is over.
        """
        begun = {name: cursor for name, cursor in self.files.items() if cursor.offset}
        files = {**{start.file: start for start in starts}, **begun}
        return self if files == self.files else replace(self, files=files)

    def passed(self, cursors: Iterable[Cursor]) -> "Positions":
        """Return the positions behind lines that were left out and are in no block, where what comes before is stored.

        The stream knows nothing of that either; without it they are read and left out once more.
        """
        files = dict(self.files)
        for cursor in cursors:
            known = files.get(cursor.file)
            if cursor.covered == (0 if known is None else known.shipped):
                files[cursor.file] = cursor
        return self if files == self.files else replace(self, files=files)

    def without(self, files: Iterable[str]) -> "Positions":
        """Return the positions without some files, by id."""
        gone = set(files)
        return replace(
            self, files={name: cursor for name, cursor in self.files.items() if name not in gone}
        )

    def forgettable(self, following: Collection[str], now: int) -> list[Cursor]:
        """Return the entries of files that are not followed and may be forgotten; `now` in nanoseconds.

        They may go once their file is gone: the stream, which is kept for a day, could not bring them back.
        """
        homeless = (cursor for cursor in self.files.values() if cursor.file not in following)
        return forgettable(homeless, now)

    def encode(self) -> bytes:
        """Return the form on disk: JSON with a version, a file on each line, and a checksum of what stands before it."""
        # json writes slowly once it is to indent; and a person, or a diff, wants lines
        files = ",\n".join(map(_line, self.files.values()))
        head = {"version": _VERSION, "agent": self.agent, "sequence": self.sequence}
        body = f'{json.dumps(head)[:-1]}, "files": {{\n{files}\n}}'.encode()
        return closed(body) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Positions":
        """Read the form on disk; raises `PositionsUnreadable`."""
        try:
            document = json.loads(data)
            version = document["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise PositionsUnreadable(f"damaged ({type(error).__name__})") from error
        if version != _VERSION:
            raise PositionsUnreadable(f"version {version!r}; this program reads {_VERSION}")
        if not is_intact(data, document):
            raise PositionsUnreadable("damaged (its checksum is another)")
        try:
            files = {name: _cursor(name, entry) for name, entry in document["files"].items()}
            return cls(int(document["sequence"]), str(document["agent"]), files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PositionsUnreadable(f"damaged ({type(error).__name__})") from error


def _line(cursor: Cursor) -> str:
    entry: dict[str, str | int] = {
        "path": cursor.path,
        "offset": cursor.offset,
        "identity": str(cursor.identity),
        "seen": cursor.seen,
    }
    if cursor.covered is not None:
        entry["covered"] = cursor.covered
    return f"{json.dumps(cursor.file)}: {json.dumps(entry)}"


def _cursor(file: str, entry: Mapping[str, str | int]) -> Cursor:
    offset, seen = int(entry["offset"]), int(entry["seen"])
    covered = int(entry["covered"]) if "covered" in entry else None
    if not 0 <= (offset if covered is None else covered) <= offset:
        raise ValueError("negative offset")
    identity = Identity.parse(str(entry["identity"]))
    return Cursor(file, str(entry["path"]), offset, identity, seen, covered)
