"""The data source `jetstream`: streams as rows for Spark SQL and Structured Streaming.

    spark.read.format("jetstream").option("servers", "nats://central:4222").load()

It reads by sequence and keeps no state at the broker: only the query's checkpoint knows how far it
has read. It does not touch the consumers and offsets of receivers.

PySpark imports each top-level package whose name is `pyspark_*`, and registers its `DefaultSource`.
Spark starts several processes to plan a query, and most only ask for the name or the columns. So
this module imports no client of NATS and no Arrow; that of a reader does.
"""

from dataclasses import replace

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pyspark_jetstream.options import SourceOptions, choose_columns, columns

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """`spark.read.format("jetstream")` and `spark.readStream.format("jetstream")`.

    A row is a section of a message, whole lines of one file; with `explode` it is a line. While a
    host stays in one partition, its lines are in order by `sequence` and then `section` or `pos`.
    docs/spark.md describes columns and options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "jetstream"

    def schema(self) -> StructType:
        """Return the columns; they depend on `explode` and `includeHeaders` only."""
        return columns(SourceOptions.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query; `schema` may have some of the columns only."""
        from pyspark_jetstream.batch import BatchReader, FilteredReader

        options = self._choose(schema)
        return FilteredReader(options) if options.push_down else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a streaming query; `schema` may have some of the columns only."""
        from pyspark_jetstream.streaming import MicroBatchReader

        return MicroBatchReader(self._choose(schema))

    def _choose(self, schema: StructType) -> SourceOptions:
        options = SourceOptions.parse(self.options)
        return replace(options, columns=choose_columns(schema, options))
