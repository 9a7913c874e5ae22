"""`logbroker get`: one message of a stream, by its sequence, or the last one of a host. Changes nothing."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from broker.app.exits import OperatorError
from broker.app.printable import printable
from broker.app.units import format_size
from broker.client.connection import Connection, RawMessage, Rejected
from broker.inspect.lines import safe
from broker.inspect.message import StoredMessage, nanoseconds, read_message, rfc3339
from broker.wire.message import MalformedMessage, Section
from broker.wire.subjects import host_filter

__all__ = ["find_message", "get_message", "last_of_host", "message_json", "message_text"]

_NO_MESSAGE_FOUND = 10037
_SPANS = "Log-Spans"


async def get_message(connection: Connection, stream: str, sequence: int | None) -> StoredMessage:
    """Return the message at a sequence of a stream, None meaning the last one; raises `OperatorError` where there is none."""
    state = (await connection.api(f"STREAM.INFO.{stream}"))["state"]
    wanted = state["last_seq"] if sequence is None else sequence
    if (found := await find_message(connection, stream, {"seq": wanted})) is None:
        raise OperatorError(_absence(stream, sequence, state))
    return found


async def last_of_host(connection: Connection, streams: Sequence[str], host: str) -> StoredMessage:
    """Return the message of a host that was stored last, in whichever stream and partition; raises `OperatorError`."""
    asked = {"last_by_subj": host_filter(host)}
    found = [await find_message(connection, stream, asked) for stream in streams]
    if not any(found):
        raise OperatorError(f"no message of host {host} is in {', '.join(streams)}")
    return max(filter(None, found), key=lambda message: message.stored_at)


async def find_message(
    connection: Connection, stream: str, asked: Mapping[str, Any]
) -> StoredMessage | None:
    """Return a message of a stream, None where there is none; raises `Rejected` or `ConnectionLost`.

    The stream's leader is asked: a replica may lag behind. `asked` is `seq`, `last_by_subj`, or `seq` and `next_by_subj`.
    """
    try:
        message = (await connection.api(f"STREAM.MSG.GET.{stream}", asked))["message"]
    except Rejected as error:
        if error.error == _NO_MESSAGE_FOUND:
            return None
        raise
    head = base64.b64decode(message.get("hdrs", ""))
    headers = RawMessage("", "", head, b"").headers or {}
    payload = base64.b64decode(message.get("data", ""))
    stored = nanoseconds(message["time"])
    return read_message(message["subject"], message["seq"], stored, headers, payload)


def _absence(stream: str, sequence: int | None, state: dict[str, Any]) -> str:
    if not state["messages"]:
        return f"stream {stream} holds no messages"
    bounds = f"stream {stream} holds {state['first_seq']} to {state['last_seq']}"
    if sequence is not None and state["first_seq"] <= sequence <= state["last_seq"]:
        return f"message {sequence} was removed; {bounds}"
    return f"no message {sequence}: {bounds}"


def message_json(message: StoredMessage) -> str:
    """Return a message for programs: the lines as `text`, or as `base64` where they are not UTF-8 or cannot be read."""
    found = message.document()
    try:
        lines = message.lines()
    except MalformedMessage as error:
        lines, found["trouble"] = message.payload, str(error)
    try:
        found["text"] = lines.decode()
    except UnicodeDecodeError:
        found["base64"] = base64.b64encode(lines).decode("ascii")
    return json.dumps(found, indent=2)


def message_text(message: StoredMessage) -> bytes:
    """Return a message for people: what is known of it, its headers, and its lines, safe for a terminal."""
    try:
        lines, trouble = message.lines(), message.trouble
    except MalformedMessage as error:
        lines, trouble = message.payload, message.trouble or str(error)
    head = [
        ("sequence", str(message.sequence)),
        ("subject", message.name),
        ("stored", rfc3339(message.stored_at)),
        *([("read", rfc3339(message.origin.read_at))] if message.origin else []),
        *(("span", _span_text(section)) for section in message.sections),
        ("payload", f"{format_size(len(message.payload))}, {lines.count(10)} lines"),
        *([("TROUBLE", f"a receiver quarantines it: {trouble}")] if trouble else []),
        *((printable(name), value) for name, value in _headers(message)),
    ]
    width = max(len(name) for name, _ in head)
    text = "\n".join(f"{name:<{width}}  {printable(value)}" for name, value in head)
    return f"{text}\n\n".encode("utf-8", "backslashreplace") + safe(lines)


def _span_text(section: Section) -> str:
    filtered = ", lines left out" if section.filtered else ""
    sizes = f"{format_size(section.size)}, {section.lines} lines"
    return f"{section.path}  {section.span}  {sizes}{filtered}"


def _headers(message: StoredMessage) -> list[tuple[str, str]]:
    """Return the headers but the spans, where each of these has a line of its own."""
    hidden = {_SPANS} if message.sections else set()
    return [(name, value) for name, value in message.headers.items() if name not in hidden]
