"""Times as nanoseconds since the epoch, as datetimes, and as RFC 3339 text of nats-server."""

import re
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000_000
"""A second in nanoseconds."""
Moment = datetime | int
"""A time of storage (aware), or a sequence of the stream."""
EARLIEST, LATEST = 0, 2**63 - 1
"""Sequences that mean the beginning and the end of a stream."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NANOSECONDS = re.compile(r"\.[0-9]{6}([0-9]{1,3})")


def parse_time(text: str) -> int:
    """Return an RFC 3339 time as nanoseconds since the epoch, exactly; raises ValueError.

    A time without a zone is UTC.
    """
    moment = datetime.fromisoformat(text)  # without the digits after the microseconds
    rest = _NANOSECONDS.search(text)
    whole = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH
    return whole // _MICROSECOND * 1000 + (int(rest[1].ljust(3, "0")) if rest else 0)


def to_datetime(nanoseconds: int) -> datetime:
    """Return a time since the epoch in UTC, cut to microseconds; raises OverflowError."""
    return EPOCH + timedelta(microseconds=nanoseconds // 1000)


def to_nanoseconds(moment: datetime) -> int:
    """Return an aware datetime as nanoseconds since the epoch."""
    return (moment - EPOCH) // _MICROSECOND * 1000


def format_datetime(moment: datetime, timespec: str = "microseconds") -> str:
    """Write an aware datetime as RFC 3339 in UTC, cut to `timespec`."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def format_time(nanoseconds: int, timespec: str = "microseconds") -> str:
    """Write a time since the epoch as `format_datetime` does, also to `nanoseconds`.

    A time that no calendar has is written as a number.
    """
    try:
        moment = to_datetime(nanoseconds)
    except OverflowError:
        return f"{nanoseconds} ns"
    if timespec == "nanoseconds":
        return f"{format_datetime(moment)[:-1]}{nanoseconds % 1000:03d}Z"
    return format_datetime(moment, timespec)


def shorten_time(time: str) -> str:
    """Return an RFC 3339 time in UTC without its part of a second."""
    return time[:19] + "Z"
