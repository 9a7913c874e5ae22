"""A message of a stream: whose lines it holds, where they came from, the lines themselves, and how it is shown. Decides only."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import zstandard

from nats_logship.app.text import printable
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
# what a terminal acts on, and marks that write a line backwards; a lone surrogate can be printed by nobody
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)


@lru_cache(100_000)
def parse_subject(name: str) -> Subject | None:
    """Return a subject that a host's lines are published to; None for any other."""
    try:
        return Subject.parse(name)
    except (InvalidSubject, InvalidHost):
        return None


@dataclass(frozen=True)
class StoredMessage:
    """A message that a stream holds; `stored_at` is in nanoseconds since the epoch.

    `payload` is as stored, and of `size` bytes; it is empty where only headers were asked for.
    """

    name: str
    sequence: int
    stored_at: int
    headers: Mapping[str, str]
    payload: bytes
    size: int

    @property
    def subject(self) -> Subject | None:
        """The subject; None where `name` is none of a host."""
        return parse_subject(self.name)

    @property
    def host(self) -> str:
        """The host, or the whole subject where it names none."""
        return self.subject.host if self.subject else self.name

    @cached_property
    def _decoded(self) -> tuple[Origin | None, str]:
        try:
            return decode_origin(self.headers), ""
        except MalformedMessage as error:
            return None, str(error)

    @property
    def origin(self) -> Origin | None:
        """What the headers say; None where they are not ours, or are damaged."""
        return self._decoded[0]

    @property
    def trouble(self) -> str:
        """Why a receiver would quarantine it, as far as subject and spans tell; empty for a good one."""
        if self.subject is None:
            return f"{self.name!r} is no subject of a host's lines"
        return self._decoded[1]

    @property
    def line_count(self) -> int:
        """How many lines it holds, as its headers say; another client's message counts as one."""
        return self.origin.lines if self.origin else 1

    @property
    def sections(self) -> tuple[Section, ...]:
        """The sections as the headers say them; none of a claim, or of another client's message."""
        return self.origin.sections if self.origin else ()

    def parts(
        self, decompressor: zstandard.ZstdDecompressor | None = None
    ) -> list[tuple[Section | None, bytes]]:
        """Return each section with its decompressed lines; raises `MalformedMessage`.

        The lines of another client than ours have no section, and end with a newline.
        """
        found = decode_payload(self.headers, self.payload, decompressor)
        if self.origin is not None:
            return [*split_sections(self.origin, found)]
        return [(None, found if not found or found.endswith(b"\n") else found + b"\n")]


def message_document(message: StoredMessage) -> dict[str, Any]:
    """Return a message as plain values: the lines as `text`, or as `base64` where they are not UTF-8 or cannot be read."""
    subject, origin, trouble = message.subject, message.origin, message.trouble
    lines = message.payload
    try:
        lines = b"".join(part for _, part in message.parts())
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


def message_text(message: StoredMessage) -> bytes:
    """Return a message for people: what is known of it, its headers, and its lines, safe for a terminal."""
    facts = message_document(message)
    lines = facts.pop("text", "").encode() or base64.b64decode(facts.pop("base64", ""))
    headers, trouble = facts.pop("headers"), facts.pop("trouble")
    shown = [*facts.items(), *(item for item in headers.items() if item[0] != _SPANS)]
    shown += [("TROUBLE", f"a receiver quarantines it: {trouble}")] if trouble else []
    text = "\n".join(f"{printable(name):<15} {printable(str(of))}" for name, of in shown if of)
    return f"{text}\n\n".encode("utf-8", "backslashreplace") + safe(lines)


def safe(lines: bytes) -> bytes:
    r"""Return lines with everything that a terminal might act on as an escape such as `\x1b`; tabs and newlines stay."""
    text = lines.decode("utf-8", "backslashreplace")
    return _ACTIVE.sub(lambda found: ascii(found[0])[1:-1], text).encode()


def json_object(data: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else, also for numbers and depths that cannot be written again."""
    try:
        found = json.loads(data)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
