"""Lengths of time, sizes, times in the stream and lists of names, as people write and read them. Decides only.

`90s`, `15m`, `1d`, also a bare number of seconds; `1.5 KiB`; a time, a length of time back from now, a day's name, a sequence.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, PlainSerializer

from nats_logship.app.timestamps import Moment

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_TOKEN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_TOKEN.pattern})+")


def parse_duration(value: object) -> timedelta:
    """Read `1d`, `1h30m`, `250ms`, or seconds as a number; raise ValueError for anything else."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().lower()
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        seconds = float(text)
    elif _WHOLE.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _TOKEN.findall(text))
    else:
        raise ValueError(f"{text!r} is not a length of time such as 30s, 15m, 12h or 1d")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any time can be") from None


def format_duration(length: timedelta) -> str:
    """Write a length of time in the largest units that keep it whole: `1d`, `1h30m`, `0.25s`."""
    seconds = length.total_seconds()
    if seconds != int(seconds) or seconds == 0:
        return f"{seconds:g}s"
    parts, rest = [], int(seconds)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""A setting that holds a length of time."""


def format_size(size: int) -> str:
    """Write a size with at most one decimal, in the largest unit that leaves at least one: `0 B`, `1.5 KiB`."""
    return ByteSize(size).human_readable(separator=" ")


ACCEPTED = (
    "a time such as 2026-11-20T10:00 or 2026-11-20T10:00+01:00, today, yesterday, a time back from now such as 2h "
    "or 1d, earliest, or a sequence such as seq:12345"
)

_SEQUENCE = re.compile(r"(?:seq:)?([0-9]{1,19})")
_DAYS = {"today": 0, "yesterday": 1}


def parse_moment(text: str, now: datetime, zone: tzinfo = UTC) -> Moment:
    """Return the place that `text` means; a time without a zone is one of `zone`. Raises ValueError, naming what would do.

    A bare number is a sequence, a bare date its first moment, `earliest` whatever the stream begins with.
    """
    word = text.strip().lower()
    if found := _SEQUENCE.fullmatch(word):
        return int(found[1])
    if word == "earliest":
        return 0
    if word == "now":
        return now
    if word in _DAYS:
        day = now.astimezone(zone).date() - timedelta(days=_DAYS[word])
        return datetime(day.year, day.month, day.day, tzinfo=zone)
    with suppress(ValueError):
        time = datetime.fromisoformat(word.upper())
        return time if time.tzinfo else time.replace(tzinfo=zone)
    with suppress(ValueError, OverflowError):
        return now - parse_duration(word)
    raise ValueError(f"{text!r} is no place in the stream: give {ACCEPTED}")
