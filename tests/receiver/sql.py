"""Spark as the receiver starts it, with SQL: tables, the data source `jetstream`, streaming queries."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from receiver.spark.session import spark_context


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Start Spark with a session on it, and end both."""
    with spark_context(master) as context:
        session = SparkSession(context)
        try:
            yield session
        finally:
            with suppress(OSError, Py4JError):  # a JVM that has died has nothing to stop
                session.stop()
