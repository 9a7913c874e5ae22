"""A message of a stream: its host, its origin, its lines, and how it is shown. No I/O."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import zstandard

from nats_logship.app.text import escape, printable
from nats_logship.app.timestamps import format_time
from nats_logship.wire.message import (
    MalformedMessage,
    Origin,
    Section,
    decode_origin,
    decode_payload,
    split_sections,
)
from nats_logship.wire.subjects import InvalidHost, InvalidSubject, Subject

_SPANS = "Log-Spans"
_SHOWN_OTHERWISE = {_SPANS, "Log-Agent", "Log-Read-At"}


@lru_cache(100_000)
def parse_subject(name: str) -> Subject | None:
    """Return the subject of a host's lines; None for any other subject."""
    try:
        return Subject.parse(name)
    except (InvalidSubject, InvalidHost):
        return None


@dataclass(frozen=True)
class StoredMessage:
    """A message that a stream holds; `stored_at` is in nanoseconds since the epoch.

    `payload` is as stored, of `size` bytes; it is empty if only headers were requested.
    """

    name: str
    sequence: int
    stored_at: int
    headers: Mapping[str, str]
    payload: bytes
    size: int

    @property
    def subject(self) -> Subject | None:
        """The subject; None if `name` is not the subject of a host."""
        return parse_subject(self.name)

    @property
    def host(self) -> str:
        """The host; the whole subject if that names no host."""
        return self.subject.host if self.subject else self.name

    @cached_property
    def _decoded(self) -> tuple[Origin | None, str]:
        try:
            return decode_origin(self.headers), ""
        except MalformedMessage as error:
            return None, str(error)

    @property
    def origin(self) -> Origin | None:
        """The origin in the headers; None if another client sent it, or the headers are damaged."""
        return self._decoded[0]

    @property
    def trouble(self) -> str:
        """Why a receiver would quarantine it, by subject and spans; empty if it would not."""
        if self.subject is None:
            return f"{self.name!r} is not the subject of a host"
        return self._decoded[1]

    @property
    def line_count(self) -> int:
        """The number of lines in its headers; 1 for the message of another client."""
        return self.origin.lines if self.origin else 1

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections in its headers; a claim and the message of another client have none."""
        return self.origin.sections if self.origin else ()

    def split_lines(
        self, decompressor: zstandard.ZstdDecompressor | None = None
    ) -> list[tuple[Section | None, bytes]]:
        """Return each section with its decompressed lines; raises `MalformedMessage`.

        The lines of another client have no section. A newline is added if the last has none.
        """
        found = decode_payload(self.headers, self.payload, decompressor)
        if self.origin is not None:
            return [*split_sections(self.origin, found)]
        return [(None, found if not found or found.endswith(b"\n") else found + b"\n")]


def serialize_message(message: StoredMessage) -> dict[str, Any]:
    """Return a message as plain values.

    The lines are `text`, or `base64` if they are not UTF-8. The payload takes their place if it
    cannot be read.
    """
    subject, origin, trouble = message.subject, message.origin, message.trouble
    lines = message.payload
    try:
        lines = b"".join(part for _, part in message.split_lines())
    except MalformedMessage as error:
        trouble = trouble or str(error)
    document = {
        "subject": message.name,
        "sequence": message.sequence,
        "time": format_time(message.stored_at),
        "partition": subject.partition if subject else None,
        "host": subject.host if subject else None,
        "agent": origin.agent if origin else None,
        "read_at": format_time(origin.read_at) if origin else None,
        "stored_bytes": message.size,
        "spans": json.loads(message.headers[_SPANS]) if message.sections else [],
        "headers": dict(message.headers),
        "trouble": trouble or None,
    }
    try:
        return document | {"text": lines.decode()}
    except UnicodeDecodeError:
        return document | {"base64": base64.b64encode(lines).decode("ascii")}


def format_message(message: StoredMessage) -> bytes:
    """Return a message for people: origin, headers and lines, escaped for a terminal."""
    facts = serialize_message(message)
    lines = facts.pop("text", "").encode() or base64.b64decode(facts.pop("base64", ""))
    headers, trouble = facts.pop("headers"), facts.pop("trouble")
    del facts["spans"]
    shown = [*facts.items(), *(("lines of", _describe(one)) for one in message.sections)]
    hidden = _SHOWN_OTHERWISE if message.origin else {_SPANS}
    shown += [item for item in headers.items() if item[0] not in hidden]
    shown += [("TROUBLE", f"a receiver quarantines it: {trouble}")] if trouble else []
    text = "\n".join(
        f"{printable(name):<15} {printable(str(value))}"
        for name, value in shown
        if value is not None
    )
    return f"{text}\n\n".encode("utf-8", "backslashreplace") + escape(lines)


def _describe(section: Section) -> str:
    span, records = section.span, section.records
    joined = f", records by {records}" if records else ""
    return f"{section.path}, {section.unit} [{span.start}, {span.end}){joined}"


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else, also if it cannot be written again.

    Such are infinite numbers, and lists that are nested too deeply.
    """
    try:
        found = json.loads(data)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
