"""The questions and the reads of a query, asked of the broker from Spark's threads, on this process's connection."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from broker.app.exits import OperatorError
from broker.client.connection import Connection
from receiver.consume import background
from receiver.source.lease import connected
from receiver.source.options import SourceOptions
from receiver.source.ranges import Range
from receiver.source.reread import read
from receiver.source.rows import record_batches

__all__ = ["ask", "rows"]

_PLANNING = 60.0  # seconds for all questions of one planning step
Answer = TypeVar("Answer")


class BrokerSilent(OperatorError):
    """The broker is there and does not answer."""


def ask(options: SourceOptions, question: Callable[[Connection], Awaitable[Answer]]) -> Answer:
    """Return the answer to a question of planning; raises the errors of `survey`, `BrokerSilent` after a minute."""
    with connected(options.servers, options.access) as connection:

        async def put() -> Answer:
            return await question(connection)

        try:
            return background.wait(put(), _PLANNING)
        except TimeoutError:
            raise BrokerSilent(
                f"stream {options.stream} at {connection.servers}: no answer in {_PLANNING:g} s"
            ) from None
        except OperatorError as error:
            # Spark shows a user the whole way that an error took; what is wrong stands at its end
            raise error.with_traceback(None) from None


def rows(options: SourceOptions, partition: InputPartition, fail: bool) -> Iterator[pa.RecordBatch]:
    """Yield what a task of Spark's reads."""
    item: Any = partition.value
    if not isinstance(item, Range):
        return  # Spark asks for one partition even where there is none to read
    with connected(options.servers, options.access) as connection:
        for run in read(connection, options.stream, item, fail):
            yield from record_batches(run, options.show, item.partitions)
