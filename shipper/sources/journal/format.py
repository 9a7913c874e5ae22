"""Makes lines of entries: short ones, or JSON, as `journalctl --all` prints them.

A short line is that of `--output=short-iso-precise`, but bytes that are not printable are kept. An
entry without a message has no line. Lines of a message behind its first one are indented by the
width of what precedes the message.
"""

import re
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from shipper.sources.journal.entries import Fields, Pairs

_LATEST = 1 << 55  # microseconds: journalctl takes no larger number for a time
_MOST_DIGITS = 17  # that such a number has
_NO_CHARACTERS = "".join(
    chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17)
)
_NOT_SHOWN = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef{_NO_CHARACTERS}]")
_encode = msgspec.json.Encoder().encode


class ShortForm:
    """Time, host, name and message."""

    names: Sequence[str] = (
        *("MESSAGE", "SYSLOG_IDENTIFIER", "_PID", "_HOSTNAME", "_SOURCE_REALTIME_TIMESTAMP"),
        *("_COMM", "SYSLOG_PID", "__REALTIME_TIMESTAMP"),
    )

    def format(self, fields: Fields, text: bytes) -> bytes:
        """Return the lines of an entry; empty without a message."""
        return _format_short(fields)

    def format_pairs(self, pairs: Pairs) -> bytes:
        """As above."""
        return _format_short(dict(pairs))


class JsonForm:
    """All fields: a string, an array of bytes for one that is not printable, or an array of those.

    That is for a name that an entry has several times.
    """

    names: Sequence[str] = ()

    def format(self, fields: Fields, text: bytes) -> bytes:
        """Return the line of an entry without binary fields, which is printed as `text`."""
        shown = "__CURSOR=" + text.decode("utf-8", "replace")
        pairs = [line.split("=", 1) for line in shown.split("\n")]
        found: dict[str, Any] = dict(pairs)
        return _encode(found if len(found) == len(pairs) else _join(pairs)) + b"\n"

    def format_pairs(self, pairs: Pairs) -> bytes:
        """Return the line of an entry with these fields."""
        shown = [(name.decode("utf-8", "replace"), _show(value)) for name, value in pairs]
        return _encode(_join(shown)) + b"\n"


def _join(pairs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    lists: dict[str, list[Any]] = {}
    for name, value in pairs:
        lists.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in lists.items()}


def _show(value: bytes) -> str | list[int]:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return list(value)
    return list(value) if _NOT_SHOWN.search(text) else text


def _format_short(fields: Fields) -> bytes:
    get = fields.get
    message = get(b"MESSAGE")
    if message is None:
        return b""
    moment = get(b"_SOURCE_REALTIME_TIMESTAMP", b"")
    if not _is_time(moment):
        moment = get(b"__REALTIME_TIMESTAMP", b"")
        if not _is_time(moment):
            moment = b"0"
    moment = moment.lstrip(b"0").zfill(7) if len(moment) != 16 else moment
    second, zone = _format_second(moment[:-6])
    host, name = get(b"_HOSTNAME"), get(b"SYSLOG_IDENTIFIER", get(b"_COMM", b"unknown"))
    of_host = b"" if host is None else b" " + host
    process = get(b"_PID", get(b"SYSLOG_PID"))
    of_process = b"" if process is None else b"[%b]" % process
    head = b"%b.%b%b%b %b%b: " % (second, moment[-6:], zone, of_host, name, of_process)
    if b"\n" in head:  # any client may send an identifier that would begin another entry
        head = head.replace(b"\n", b" ")
    if b"\n" in message:
        message = message.removesuffix(b"\n").replace(b"\n", b"\n" + b" " * len(head))
    return b"%b%b\n" % (head, message)


def _is_time(value: bytes) -> bool:
    # any host may send any digits; Python refuses to read more than 4300 of them
    return len(value) <= _MOST_DIGITS and value.isdigit() and 0 < int(value) < _LATEST


@lru_cache(1024)
def _format_second(seconds: bytes) -> tuple[bytes, bytes]:
    """Return date and time, and the zone, of a moment in this machine's time zone."""
    moment = time.localtime(int(seconds))
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment).encode(), time.strftime("%z", moment).encode()
