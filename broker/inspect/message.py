"""A message of a stream: what its subject and headers say, and how it is shown. No I/O."""

import base64
import json
from typing import Any, NamedTuple

from nats_logship.app.text import escape, format_count, printable
from nats_logship.app.timestamps import format_time
from nats_logship.wire.message import MalformedMessage, Origin, Section, decode_origin
from nats_logship.wire.stream_message import StreamMessage, split_message
from nats_logship.wire.subjects import Subject, parse_subject

_SPANS = "Log-Spans"
_SHOWN_OTHERWISE = {_SPANS, "Log-Agent", "Log-Read-At"}


class Facts(NamedTuple):
    """What a message says of itself.

    `subject` is None if it names no host, `origin` if another client sent it. `trouble` is why a
    receiver would quarantine it, by subject and headers; empty if it would not. Then there may be
    no origin.
    """

    subject: Subject | None
    origin: Origin | None
    trouble: str

    @property
    def line_count(self) -> int:
        """The number of lines in its headers; 1 for the message of another client."""
        return self.origin.lines if self.origin else 1


def read_facts(message: StreamMessage) -> Facts:
    """Return what the subject and the headers of a message say."""
    subject, origin, trouble = parse_subject(message.subject), None, ""
    try:
        origin = decode_origin(message.headers)
    except MalformedMessage as error:
        trouble = str(error)
    if subject is None:
        trouble = f"{message.subject!r} is not the subject of a host"
    return Facts(subject, origin, trouble)


def serialize_message(message: StreamMessage) -> dict[str, Any]:
    """Return a message as plain values.

    The lines are `text`, or `base64` if they are not UTF-8. The payload takes their place if it
    cannot be read.
    """
    subject, origin, trouble = read_facts(message)
    lines = message.payload
    try:
        lines = b"".join(part for _, part in split_message(message, origin))
    except MalformedMessage as error:
        trouble = trouble or str(error)
    document = {
        "subject": message.subject,
        "sequence": message.sequence,
        "time": format_time(message.stored_at),
        "partition": subject.partition if subject else None,
        "host": subject.host if subject else None,
        "agent": origin.agent if origin else None,
        "read_at": format_time(origin.read_at) if origin else None,
        "holds": _describe_content(message, origin),
        "stored_bytes": len(message.payload),
        "spans": json.loads(message.headers[_SPANS]) if origin and origin.sections else [],
        "headers": message.headers,
        "trouble": trouble or None,
    }
    try:
        return document | {"text": lines.decode()}
    except UnicodeDecodeError:
        return document | {"base64": base64.b64encode(lines).decode("ascii")}


def format_message(message: StreamMessage) -> bytes:
    """Return a message for people: origin, headers and lines, escaped for a terminal."""
    facts, origin = serialize_message(message), read_facts(message).origin
    lines = facts.pop("text", "").encode() or base64.b64decode(facts.pop("base64", ""))
    headers, trouble = facts.pop("headers"), facts.pop("trouble")
    del facts["spans"]
    sections = origin.sections if origin else ()
    shown = [*facts.items(), *(("lines of", _describe(one)) for one in sections)]
    hidden = _SHOWN_OTHERWISE if origin else {_SPANS}
    shown += [item for item in headers.items() if item[0] not in hidden]
    shown += [("TROUBLE", f"a receiver quarantines it: {trouble}")] if trouble else []
    text = "\n".join(
        f"{printable(name):<15} {printable(str(value))}"
        for name, value in shown
        if value is not None
    )
    return f"{text}\n\n".encode("utf-8", "backslashreplace") + escape(lines)


def _describe_content(message: StreamMessage, origin: Origin | None) -> str:
    if origin is None:
        size = format_count(len(message.payload), "byte")
        return f"{size} of a client that is no shipper" if message.payload else "nothing"
    if origin.lines:
        return format_count(origin.lines, "line")
    if origin.size:
        return f"{format_count(origin.size, 'byte')} of a line that goes on in the next message"
    if origin.sections:
        return "no lines: a shipper has read on, and filters left out what it read"
    if origin.moved is not None:
        return f"no lines: from here on the host's lines are in partition {origin.moved}"
    return "no lines: a shipper claimed the host, as each one does when it starts or connects again"


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
