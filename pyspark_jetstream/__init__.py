"""Makes the data source known to Spark by its name: pyspark imports every top-level pyspark_* package."""

from receiver.source.datasource import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
