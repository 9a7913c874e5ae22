"""What the filters of a batch query say of the messages that it needs."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from nats_logship.app.timestamps import Moment
from nats_logship.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host
from pyspark_jetstream.options import SourceOptions

_MOST_SUBJECTS = 100  # each has ranges of its own, so more are not faster
# servers write the times of storage, and after an election the next one may have a slower clock
_SKEW = timedelta(seconds=10)


def narrow(options: SourceOptions, filters: Iterable[spark.Filter]) -> SourceOptions:
    """Return options for what all filters may let through, and maybe for some more."""
    for one in filters:
        column, value = getattr(one, "attribute", ()), getattr(one, "value", None)
        match column, one:
            case ("host",) | ("partition",), spark.EqualTo():
                options = _choose_subjects(options, (value,))
            case ("host",) | ("partition",), spark.In():
                options = _choose_subjects(options, tuple(value or ()))
            case ("sequence",) | ("time",), spark.GreaterThan() | spark.GreaterThanOrEqual():
                options = replace(options, since=(*options.since, *_moments(value, -_SKEW, 0)))
            case ("sequence",) | ("time",), spark.LessThan() | spark.LessThanOrEqual():
                options = replace(options, before=(*options.before, *_moments(value, _SKEW, 1)))
            case _:
                pass
    return options


def _choose_subjects(options: SourceOptions, values: tuple[Any, ...]) -> SourceOptions:
    if options.subjects is not None or None in values or len(values) > _MOST_SUBJECTS:
        return options
    return replace(options, subjects=tuple(filter(None, map(_subject, dict.fromkeys(values)))))


def _subject(value: str | int) -> str:
    """Return the filter for a host or a partition; empty for what no subject has."""
    if isinstance(value, int):
        return partition_filter(value) if value >= 0 else ""
    try:
        return host_filter(validate_host(value))
    except InvalidHost:
        return ""


def _moments(value: object, skew: timedelta, more: int) -> tuple[Moment, ...]:
    """Return a sequence and `more`, or a time with the skew of clocks; nothing for what is none."""
    if isinstance(value, datetime):
        is_usable = value.tzinfo is not None and 1 < value.year < 9999
        return (value + skew,) if is_usable else ()
    return (value + more,) if isinstance(value, int) else ()
