"""Makes the data source known to Spark by its name: pyspark imports every top-level pyspark_* package."""

from receiver.source import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
