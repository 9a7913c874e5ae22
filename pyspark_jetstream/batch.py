"""Plans a batch query: the ranges between its starting and its ending offsets."""

from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.timestamps import EARLIEST, LATEST
from nats_logship.client.connection import Connection
from nats_logship.client.find import resolve_moment
from nats_logship.client.ranges import SequenceRange, require_unread
from pyspark_jetstream.filters import narrow
from pyspark_jetstream.options import SourceOptions
from pyspark_jetstream.planning import Reader, choose_streams, plan_ranges


class BatchReader(Reader, DataSourceReader):
    """Plans a batch: the ranges between the starting and the ending offsets."""

    def __init__(self, options: SourceOptions) -> None:
        """Raise `ConfigurationError` if the options leave nothing to read."""
        starting, ending = options.starting or EARLIEST, options.ending
        if starting == LATEST:
            raise ConfigurationError("startingOffsets latest leaves nothing to read in a batch")
        is_comparable = isinstance(starting, int) == isinstance(ending, int)
        # they are of one type
        if ending == EARLIEST or (ending and is_comparable and ending < starting):  # type: ignore[operator]
            raise ConfigurationError("the query ends before it starts: see the ending offset")
        # `earliest` begins with the messages that there are, whichever expire meanwhile
        super().__init__(options, fail=options.fail_on_data_loss and starting != EARLIEST)
        self._edges = starting, LATEST if ending is None else ending

    def partitions(self) -> list[InputPartition]:
        """Return the ranges of the batch."""
        return self._partitions(self._ask(self._plan))

    async def _plan(self, connection: Connection) -> list[SequenceRange]:
        options, found = self._options, list[SequenceRange]()
        for state in (await choose_streams(connection, options)).values():
            first, until = [await resolve_moment(connection, one, state) for one in self._edges]
            if self._fail:
                require_unread(first, until, state)
            low = [await resolve_moment(connection, one, state) for one in options.since]
            high = [await resolve_moment(connection, one, state) for one in options.before]
            span = max(first, state.first, *low), min(until, state.until, *high)
            found += await plan_ranges(connection, options, span, state)
        return found


class FilteredReader(BatchReader):
    """Leaves out what no filter of the query lets through; Spark applies them all the same.

    Spark refuses a reader with this method while its push-down is off, so `pushDown` asks for it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Note what the filters say of hosts, partitions, sequences and times; return them all."""
        self._options = narrow(self._options, filters)
        return filters
