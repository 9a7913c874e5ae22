"""What Spark does with a reader of a batch, by hand."""

from typing import Any

from pyspark.sql.types import StructType

from receiver.source.datasource import JetStreamSource


def rows_of(url: str, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a batch, in order within each of its partitions."""
    reader = JetStreamSource({"servers": url, **options}).reader(StructType())
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()  # type: ignore[union-attr]
    ]
