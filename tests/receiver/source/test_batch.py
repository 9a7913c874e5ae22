"""Batches without Spark, whose part is done by hand."""

from typing import Any

import pytest
from pyspark.sql.types import StructType

from receiver.source.datasource import JetStreamSource

pytestmark = pytest.mark.nats

Row = dict[str, Any]


def fetched(options: dict[str, str]) -> list[Row]:
    """Return the rows that a reader hands to Spark, in their order."""
    reader = JetStreamSource(options).reader(StructType())
    return [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def test_a_stream_that_is_not_ours_is_read_by_its_subjects(
    fresh_url: str, store: Any, call: Any
) -> None:
    stream = {"name": "ORDERS", "subjects": ["orders.>"], "storage": "memory", "allow_direct": True}
    call(fresh_url, "STREAM.CREATE.ORDERS", stream)
    store(fresh_url, ("orders.new", b'{"id": 1}', {"Colour": "blue"}), ("orders.old", b"2", None))

    rows = fetched({"servers": fresh_url, "stream": "ORDERS", "subjects": "orders.new,orders.x.>"})

    assert [(r["partition"], r["host"], r["subject"], r["payload"]) for r in rows] == [
        (None, None, "orders.new", b'{"id": 1}\n')
    ]
    assert rows[0]["headers"] == [("Colour", "blue")]
