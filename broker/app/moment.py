"""Places in the stream as people write them: a time, a length of time back from now, a day's name, a sequence. Decides only."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from broker.app.durations import parse_duration

__all__ = ["ACCEPTED", "Moment", "read_moment"]

ACCEPTED = (
    "a time such as 2026-11-20T10:00 or 2026-11-20T10:00+01:00, today, yesterday, a time back from now such as 2h "
    "or 1d, earliest, or a sequence such as seq:12345"
)

Moment = datetime | int
"""A time of storage (aware) or a sequence of the stream."""

_SEQUENCE = re.compile(r"(?:seq:)?([0-9]{1,19})")
_DAYS = {"today": 0, "yesterday": 1}


def read_moment(text: str, now: datetime, zone: tzinfo = UTC) -> Moment:
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
    return _time(word, zone) or _back(word, now, text)


def _time(word: str, zone: tzinfo) -> datetime | None:
    try:
        time = datetime.fromisoformat(word.upper())
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=zone)


def _back(word: str, now: datetime, text: str) -> datetime:
    try:
        return now - parse_duration(word)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no place in the stream: give {ACCEPTED}") from None
