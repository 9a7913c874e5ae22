"""Plans a batch query: the ranges between its offsets, and what its filters say of them."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import EARLIEST, LATEST, Moment
from nats_logship.client.connection import Connection
from nats_logship.client.find import resolve_moment
from nats_logship.wire.subjects import InvalidHost, host_filter, partition_filter, validate_host
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.planning import Reader, choose_streams

_MOST_SUBJECTS = 100  # each has ranges of its own, so more are not faster
# servers write the times of storage, and after an election the next one may have a slower clock
_SKEW = timedelta(seconds=10)


class BatchReader(Reader, DataSourceReader):
    """Plans a batch: the ranges between the starting and the ending offsets."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` if the options leave nothing to read."""
        starting = options.starting or EARLIEST
        ending = LATEST if options.ending is None else options.ending
        if starting == LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        is_comparable = isinstance(starting, int) == isinstance(ending, int)
        if ending == EARLIEST or (is_comparable and ending < starting):  # type: ignore[operator]
            raise ConfigurationError("the query ends before it starts: see the ending offset")
        # `earliest` begins with the messages that there are, whichever expire meanwhile
        fail = options.fail_on_data_loss and starting != EARLIEST
        super().__init__(replace(options, since=(starting,), before=(ending,)), fail=fail)

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the batch."""
        return self._ask(self._plan)

    async def _plan(self, connection: Connection) -> list[InputPartition]:
        options, found = self._options, list[InputPartition]()
        for state in (await choose_streams(connection, options)).values():
            resolve = partial(resolve_moment, connection, state=state)
            first = max([await resolve(one) for one in options.since])
            until = min([await resolve(one) for one in options.before])
            found += await self._plan_ranges(connection, first, min(until, state.until), state)
        return found


class FilteredReader(BatchReader):
    """Leaves out what no filter of the query lets through; Spark applies them all the same.

    Spark refuses a reader with this method while its push-down is off, so `pushDown` asks for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Note what the filters say of hosts, partitions, sequences and times; return them all."""
        self._options = _narrow(self._options, filters)
        return filters


def _narrow(options: SourceOptions, filters: Iterable[Filter]) -> SourceOptions:
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
    found = list[str]()
    for value in dict.fromkeys(values):
        with suppress(InvalidHost):  # no subject has it
            number = isinstance(value, int)
            found.append(partition_filter(value) if number else host_filter(validate_host(value)))
    return replace(options, subjects=tuple(found))


def _moments(value: object, skew: timedelta, more: int) -> tuple[Moment, ...]:
    """Return a sequence and `more`, or a time with the skew of clocks; nothing for what is none."""
    if isinstance(value, datetime) and value.tzinfo and 1 < value.year < 9999:
        return (value + skew,)
    return (value + more,) if isinstance(value, int) else ()
