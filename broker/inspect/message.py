"""A message of a stream: whose lines it holds, where they came from, and the lines themselves. Decides only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import zstandard

from broker.wire.delivery import Arrived
from broker.wire.message import (
    MalformedMessage,
    Origin,
    Section,
    decode_origin,
    decode_payload,
    split,
)
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = [
    "Headers",
    "StoredMessage",
    "headers_of",
    "nanoseconds",
    "read_message",
    "rfc3339",
    "subject_of",
]

_MICROSECOND = 1000
_SECOND = 1_000_000_000
_TIME = re.compile(r"(.{19})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})")
_ENCODINGS = frozenset({"", "zstd"})


def rfc3339(nanoseconds: int) -> str:
    """Return a time since the epoch as text, to the microsecond; one that no calendar has, as a number."""
    seconds, rest = divmod(nanoseconds, _SECOND)
    try:
        moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // _MICROSECOND)
    except (ValueError, OverflowError, OSError):
        return f"{nanoseconds} ns"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def nanoseconds(time: str) -> int:
    """Return a time of the server, RFC 3339 with up to nine decimals, as nanoseconds since the epoch; raises ValueError."""
    found = _TIME.fullmatch(time)
    if found is None:
        raise ValueError(f"{time!r} is no time")
    whole, digits, zone = found.groups()
    seconds = int(datetime.fromisoformat(f"{whole}{zone.replace('Z', '+00:00')}").timestamp())
    return seconds * _SECOND + int((digits or "0").ljust(9, "0"))


@lru_cache(100_000)
def subject_of(name: str) -> Subject | None:
    """Return a subject that a host's lines are published to; None for any other."""
    try:
        return Subject.parse(name)
    except (InvalidSubject, InvalidHost):
        return None


@dataclass(frozen=True, slots=True)
class Headers:
    """What the headers of a valid message say; `size` is its payload as stored, `origin` None for another client's message."""

    lines: int
    size: int
    origin: Origin | None

    @property
    def agent(self) -> str:
        """The agent that sent it, empty for another client's message."""
        return self.origin.agent if self.origin else ""

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the source files, in the order of their sections."""
        return tuple(section.path for section in self.origin.sections) if self.origin else ()


def headers_of(message: Arrived) -> Headers | None:
    """Read a message that came without its payload; None where a receiver would quarantine it by its headers.

    Another client's message counts as one line.
    """
    headers, size = message.headers or {}, message.size
    try:
        origin = decode_origin(headers)
    except MalformedMessage:
        return None
    if origin is None:
        return Headers(1, size, None) if headers.get("Content-Encoding", "") in _ENCODINGS else None
    if not origin.compressed and origin.size != size:
        return None
    return Headers(origin.lines, size, origin)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that a stream holds; `stored_at` is in nanoseconds since the epoch.

    `subject` is None where `name` is no subject of a host, `origin` where the headers are not ours. `trouble` says why a
    receiver would quarantine the message, and is empty for a good one. `payload` is as stored.
    """

    name: str
    sequence: int
    stored_at: int
    headers: Mapping[str, str]
    payload: bytes
    subject: Subject | None
    origin: Origin | None
    trouble: str

    @property
    def host(self) -> str:
        """The host, or the whole subject where it names none."""
        return self.subject.host if self.subject else self.name

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections as the headers say them; none of a claim, or of another client's message."""
        return self.origin.sections if self.origin else ()

    def parts(
        self, decompressor: zstandard.ZstdDecompressor | None = None
    ) -> list[tuple[str, bytes]]:
        """Return the decompressed lines of each section with the path of its file; raises `MalformedMessage`.

        The lines of another client than ours have no path, and end with a newline.
        """
        found = decode_payload(self.headers, self.payload, decompressor)
        if self.origin is not None:
            return [(section.path, lines) for section, lines in split(self.origin, found)]
        return [("", found if not found or found.endswith(b"\n") else found + b"\n")]

    def lines(self) -> bytes:
        """Return the lines of all sections; raises `MalformedMessage`."""
        return b"".join(lines for _, lines in self.parts())

    def document(self) -> dict[str, Any]:
        """Return what is known of the message as plain values, without the lines."""
        return {
            "subject": self.name,
            "sequence": self.sequence,
            "time": rfc3339(self.stored_at),
            "partition": self.subject.partition if self.subject else None,
            "host": self.subject.host if self.subject else None,
            "spans": [_span_document(section) for section in self.sections],
            "agent": self.origin.agent if self.origin else None,
            "read_at": rfc3339(self.origin.read_at) if self.origin else None,
            "stored_bytes": len(self.payload),
            "headers": dict(self.headers),
            "trouble": self.trouble or None,
        }


def _span_document(section: Section) -> dict[str, Any]:
    span = section.span
    return {
        "file": section.path,
        "id": span.file,
        "start": span.start,
        "end": span.end,
        "size": section.size,
        "lines": section.lines,
        "filtered": section.filtered,
    }


def read_message(
    subject: str, sequence: int, stored_at: int, headers: Mapping[str, str], payload: bytes
) -> StoredMessage:
    """Read a message; whatever is wrong with it is its `trouble`."""
    trouble, origin, parsed = "", None, None
    try:
        parsed = Subject.parse(subject)
    except (InvalidSubject, InvalidHost) as error:
        trouble = str(error)
    try:
        origin = decode_origin(headers)
    except MalformedMessage as error:
        trouble = trouble or str(error)
    return StoredMessage(subject, sequence, stored_at, headers, payload, parsed, origin, trouble)
