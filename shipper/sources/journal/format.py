"""Makes lines of entries, as `journalctl --all --output=short-iso-precise` prints them.

Bytes that are not printable are kept. An entry without a message has no line. Lines of a message
behind its first one are indented by the width of what precedes the message.
"""

import time
from functools import lru_cache

from shipper.sources.journal.entries import Fields

FIELDS = (
    "MESSAGE",
    "SYSLOG_IDENTIFIER",
    "_PID",
    "_HOSTNAME",
    "_SOURCE_REALTIME_TIMESTAMP",
    "_COMM",
    "SYSLOG_PID",
)
_LATEST = 1 << 55  # microseconds: journalctl takes no larger number for a time


def format_short(fields: Fields) -> bytes:
    """Return the lines of an entry, with their newlines; empty without a message."""
    get = fields.get
    message = get(b"MESSAGE")
    if message is None:
        return b""
    moment = get(b"_SOURCE_REALTIME_TIMESTAMP", b"")
    if not (moment.isdigit() and 0 < int(moment) < _LATEST):
        moment = fields[b"__REALTIME_TIMESTAMP"]
    moment = moment.lstrip(b"0").zfill(7) if len(moment) != 16 else moment
    second, zone = _format_second(moment[:-6])
    host, name = get(b"_HOSTNAME"), get(b"SYSLOG_IDENTIFIER", get(b"_COMM", b"unknown"))
    of_host = b"" if host is None else b" " + host
    process = get(b"_PID", get(b"SYSLOG_PID"))
    of_process = b"" if process is None else b"[%b]" % process
    head = b"%b.%b%b%b %b%b: " % (second, moment[-6:], zone, of_host, name, of_process)
    if b"\n" in message:
        message = message.removesuffix(b"\n").replace(b"\n", b"\n" + b" " * len(head))
    return b"%b%b\n" % (head, message)


@lru_cache(1024)
def _format_second(seconds: bytes) -> tuple[bytes, bytes]:
    """Return date and time, and the zone, of a moment in this machine's time zone."""
    moment = time.localtime(int(seconds))
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment).encode(), time.strftime("%z", moment).encode()
