"""Makes the data source known to Spark by its name: pyspark imports every top-level pyspark_* package."""

from pyspark_jetstream.datasource import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
