"""Batches without Spark, whose part is done by hand."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from broker.app.exits import ConfigurationError
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


def test_rows_between_two_times_are_those_stored_then(logs_url: str, store: Any) -> None:
    store(logs_url, *(("logs.p0.web", b"x\n", None) for _ in range(20)))
    time = {row["sequence"]: row["time"].isoformat() for row in fetched({"servers": logs_url})}

    rows = fetched({"servers": logs_url, "startingTimestamp": time[5], "endingTimestamp": time[9]})
    none = fetched({"servers": logs_url, "startingTimestamp": "2999-01-01"})

    found = [row["sequence"] for row in rows]
    assert found == [*range(found[0], 9)]
    assert 3 <= found[0] <= 5  # a row shows microseconds, the broker counts nanoseconds
    assert none == []


@pytest.mark.parametrize(
    ("options", "content", "complaint"),
    [
        ({"passwordFile": "{}", "password": "x"}, b"s3cret", "two ways"),
        ({"passwordFile": "{}", "user": "me"}, b"\n", "is empty"),
        ({"passwordFile": "{}", "user": "me"}, b"\xff\xfes3cret", "holds no text"),
        ({"passwordFile": "{}.away", "user": "me"}, b"", "No such file"),
        ({"passwordFile": "{}"}, b"s3cret", "user and password come together"),
    ],
)
def test_a_password_file_is_refused_without_showing_it(
    options: dict[str, str], content: bytes, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    source = JetStreamSource({name: value.format(path) for name, value in options.items()})

    with pytest.raises(ConfigurationError, match=complaint) as raised:
        source.schema()

    assert "s3cret" not in str(raised.value)
