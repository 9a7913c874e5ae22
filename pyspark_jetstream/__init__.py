"""Registers the data source: PySpark imports each top-level package whose name is `pyspark_*`."""

from pyspark_jetstream.datasource import JetStreamSource as DefaultSource

__all__ = ["DefaultSource"]
