"""Lengths of time as people write them: `90s`, `15m`, `1d`; also a bare number of seconds."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

__all__ = ["Duration", "format_duration", "parse_duration"]

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
