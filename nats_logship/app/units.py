"""Durations, sizes, rates and moments of the stream, as people write them.

They write `90s` or `1h30m`, `1.5 KiB`, `5MB/s`, and `2026-11-20T10:00`.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Annotated

from pydantic import BeforeValidator, ByteSize, PlainSerializer, TypeAdapter, ValidationError

from nats_logship.app.timestamps import Moment, format_datetime

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration(value: object) -> timedelta:
    """Read `1d`, `1h30m`, `250ms`, or a number of seconds; raises ValueError."""
    if isinstance(value, timedelta):
        return value
    text = str(value).strip().lower()
    if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
        seconds = float(text)
    elif _WHOLE.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    else:
        raise ValueError(f"{text!r} is not a duration such as 30s, 15m, 12h or 1d")
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def format_duration(length: timedelta) -> str:
    """Write a duration in whole units: `1d`, `1h30m`; or as seconds: `0.25s`."""
    seconds = length.total_seconds()
    if seconds != int(seconds) or seconds == 0:
        return f"{seconds:g}s"
    parts, rest = [], int(seconds)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def format_rounded(seconds: float) -> str:
    """Write a length of time to the second below an hour, else to the minute."""
    whole = int(seconds)
    return format_duration(timedelta(seconds=whole if whole < 3600 else whole // 60 * 60))


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
"""A setting that holds a duration."""


def format_size(size: int) -> str:
    """Write a size with at most one decimal: `0 B`, `1.5 KiB`."""
    return ByteSize(size).human_readable(separator=" ")


_SIZE = TypeAdapter(ByteSize)
_LEAST_RATE = 1024


def parse_rate(value: object) -> int:
    """Read `5MB/s`, `512KiB/s`, or 0 or `none` for no limit; raises ValueError."""
    text = str(value).strip().lower()
    size = "0" if text == "none" else text.removesuffix("/s")
    try:
        rate = int(_SIZE.validate_python("" if "/" in size else size))
    except ValidationError:
        raise ValueError(
            f"{text!r} is not a rate such as 5MB/s or 512KiB/s, or 0 for no limit"
        ) from None
    if 0 < rate < _LEAST_RATE:
        raise ValueError(f"{text!r} is less than 1KiB/s; give more, or 0 for no limit")
    return rate


Rate = Annotated[int, BeforeValidator(parse_rate)]
"""A setting that holds bytes per second; 0 is no limit."""


ACCEPTED = (
    "a time such as 14:03, 2026-11-20T10:00 or 2026-11-20T10:00+01:00, today, yesterday, a "
    "duration back from now such as 2h or 1d, earliest, or a sequence such as seq:12345"
)
_SEQUENCE = re.compile(r"(?:seq:)?([0-9]{1,19})")
_DAYS = {"today": 0, "yesterday": 1}


def _read_clock(text: str) -> time:
    return time.fromisoformat(text.strip().upper())


def _last_time(clock: time, now: datetime, zone: tzinfo) -> datetime:
    zone = clock.tzinfo or zone
    day = now.astimezone(zone).date()
    found = datetime.combine(day, clock, zone)
    return found if found <= now else datetime.combine(day - timedelta(days=1), clock, zone)


def _next_time(clock: time, since: datetime, zone: tzinfo) -> datetime:
    zone = clock.tzinfo or zone
    day = since.astimezone(zone).date()
    found = datetime.combine(day, clock, zone)
    return found if found > since else datetime.combine(day + timedelta(days=1), clock, zone)


def _resolve(found: datetime, *, is_end: bool) -> datetime:
    """Return a time in UTC: of two, as clocks are set back or forward, the one of a wider range."""
    both = [found.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
    return max(both) if is_end else min(both)


def parse_moment(text: str, now: datetime, zone: tzinfo = UTC, *, is_end: bool = False) -> Moment:
    """Read a moment; a time without a zone is in `zone`. Raises ValueError with the forms allowed.

    A bare number is a sequence, a bare date its first moment, `earliest` the sequence 0. A time of
    the day is the last one that is not in the future. One that clocks show twice is the first, as
    the end of a range the second.
    """
    value = text.strip().lower()
    if sequence := _SEQUENCE.fullmatch(value):
        return int(sequence[1])
    if value in {"earliest", "now"}:
        return now if value == "now" else 0
    if value in _DAYS:
        day = now.astimezone(zone).date() - timedelta(days=_DAYS[value])
        return _resolve(datetime(day.year, day.month, day.day, tzinfo=zone), is_end=is_end)
    with suppress(ValueError):
        return _resolve(_last_time(_read_clock(value), now, zone), is_end=is_end)
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(value.upper())
        return _resolve(found if found.tzinfo else found.replace(tzinfo=zone), is_end=is_end)
    with suppress(ValueError, OverflowError):
        return now - parse_duration(value)
    raise ValueError(f"{text!r} is not a time: give {ACCEPTED}")


def parse_range(
    since: str, until: str, now: datetime, zone: tzinfo = UTC
) -> tuple[Moment | None, Moment | None]:
    """Read a range `[since, until)`; an empty text is None, for no bound.

    As its end, a time of the day is the first one behind a beginning that is a time, so it may be
    in the future. Raises ValueError, which begins with the name of the bound.
    """
    begin = _parse_bound("since", since, now, zone)
    end = _parse_bound("until", until, now, zone)
    if isinstance(begin, datetime):
        with suppress(ValueError, OverflowError):
            end = _resolve(_next_time(_read_clock(until), begin, zone), is_end=True)
    if _is_empty(begin, end):
        raise ValueError(f"until: {format_moment(end)} is not after since, {format_moment(begin)}")
    return begin, end


def _parse_bound(name: str, text: str, now: datetime, zone: tzinfo) -> Moment | None:
    try:
        return parse_moment(text, now, zone, is_end=name == "until") if text else None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _is_empty(begin: Moment | None, end: Moment | None) -> bool:
    if isinstance(begin, datetime) and isinstance(end, datetime):
        return end <= begin
    return isinstance(begin, int) and isinstance(end, int) and end <= begin


def format_moment(moment: Moment | None) -> str:
    """Write a time in UTC, or a sequence."""
    if isinstance(moment, datetime):
        return format_datetime(moment, "auto")
    return f"sequence {moment}"


def format_range(since: Moment | None, until: Moment | None) -> str:
    """Write a range to follow a verb: ` between A and B`, ` since A`, ` before B`, or nothing."""
    if since is not None and until is not None:
        return f" between {format_moment(since)} and {format_moment(until)}"
    if since is not None:
        return f" since {format_moment(since)}"
    return "" if until is None else f" before {format_moment(until)}"
