"""What a batch need not fetch, by the filters that Spark offers. Decides only.

It may leave out only what the filters leave out: Spark looks at every row again.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from broker.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host
from receiver.source.patterns import is_pattern, meet, partition_in
from receiver.source.ranges import Range

__all__ = ["Wanted", "narrow", "wanted_by"]

_MOST_CHOICES = 100
_EVERY_PARTITION = "logs.*.>"
_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime(9999, 1, 1, tzinfo=UTC)  # behind it a moment has no next one


@dataclass(frozen=True, slots=True)
class Wanted:
    """Sequences `[first, until)`, stored in `[since, before)`, whose subjects one pattern of each of `choices` takes in."""

    first: int = 0
    until: int | None = None
    since: datetime | None = None
    before: datetime | None = None
    choices: tuple[tuple[str, ...], ...] = ()


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """Return what all of the filters together leave; those that say nothing of where a message lies change nothing."""
    wanted = Wanted()
    for each in filters:
        wanted = _with(wanted, each)
    return wanted


def narrow(ranges: Sequence[Range], wanted: Wanted) -> list[Range]:
    """Return the ranges without the sequences and subjects that are not wanted; times are the caller's to translate."""
    until = wanted.until
    clipped = [
        replace(
            item,
            first=max(item.first, wanted.first),
            until=item.until if until is None else min(item.until, until),
        )
        for item in ranges
    ]
    kept = [item for item in clipped if item.first < item.until]
    if wanted.choices:
        kept = _merged(kept)
    for patterns in wanted.choices:
        kept = [
            replace(item, subject=met)
            for item in kept
            for pattern in patterns
            if (met := meet(item.subject, pattern)) is not None
        ]
    return kept


def _merged(ranges: list[Range]) -> list[Range]:
    # one request for a host instead of one for each partition that it may be in
    partitions = [partition_in(item.subject) for item in ranges]
    known = frozenset(number for number in partitions if number is not None)
    if len(known) < 2 or None in partitions or len({(r.first, r.until) for r in ranges}) > 1:
        return ranges
    return [Range(_EVERY_PARTITION, ranges[0].first, ranges[0].until, known)]


def _with(wanted: Wanted, filter_: Filter) -> Wanted:
    match filter_:
        case EqualTo((column,), value) | EqualNullSafe((column,), value):
            return _among(wanted, column, (value,))
        case In((column,), values):
            return _among(wanted, column, tuple(values))
        case GreaterThan((column,), value) | GreaterThanOrEqual((column,), value):
            return _at_least(wanted, column, value)
        case LessThan((column,), value) | LessThanOrEqual((column,), value):
            return _at_most(wanted, column, value)
        case _:
            return wanted


def _among(wanted: Wanted, column: str, values: tuple[object, ...]) -> Wanted:
    if column in _PATTERN_OF:
        patterns = _patterns(column, values)
        if patterns is None:
            return wanted
        return replace(wanted, choices=(*wanted.choices, patterns))
    try:
        least, greatest = min(values), max(values)  # type: ignore[type-var] # of one column, so of one type
    except (TypeError, ValueError):
        return wanted
    return _at_most(_at_least(wanted, column, least), column, greatest)


def _at_least(wanted: Wanted, column: str, value: object) -> Wanted:
    if column == "sequence" and isinstance(value, int):
        return replace(wanted, first=max(wanted.first, value))
    if column == "time" and isinstance(value, datetime) and value.tzinfo:
        return replace(wanted, since=value if wanted.since is None else max(wanted.since, value))
    return wanted


def _at_most(wanted: Wanted, column: str, value: object) -> Wanted:
    if column == "sequence" and isinstance(value, int):
        until = value + 1
        return replace(wanted, until=until if wanted.until is None else min(wanted.until, until))
    if column == "time" and isinstance(value, datetime) and value.tzinfo:
        if value >= _LAST:
            return wanted
        before = value + _MICROSECOND  # a row's time is cut to microseconds
        return replace(
            wanted, before=before if wanted.before is None else min(wanted.before, before)
        )
    return wanted


def _patterns(column: str, values: tuple[object, ...]) -> tuple[str, ...] | None:
    if len(values) > _MOST_CHOICES:
        return None
    found: dict[str, None] = {}
    for value in values:
        try:
            found[_PATTERN_OF[column](value)] = None
        except InvalidHost:
            continue  # no row has such a host
        except (TypeError, ValueError):
            return None
    return tuple(found)


def _of_host(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return host_filter(validate_host(value))


def _of_partition(value: object) -> str:
    if not isinstance(value, int) or value < 0:
        raise TypeError(value)
    return partition_filter(value)


def _of_subject(value: object) -> str:
    # a subject that is not UTF-8 is shown with a sign for what is not
    if not isinstance(value, str) or "\ufffd" in value or not is_pattern(value):
        raise TypeError(value)
    if {"*", ">"} & set(value.split(".")):
        raise TypeError(value)
    return value


_PATTERN_OF: dict[str, Callable[[object], str]] = {
    "host": _of_host,
    "partition": _of_partition,
    "subject": _of_subject,
}
