"""The examples of docs/spark.md run as they are, except for addresses and folders."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_jetstream.options import OPTIONS
from tests.receiver.partition import publish

_LINES = (("logs.p0.web01", b"one\ntwo\n", None), ("logs.p1.web02", b"three\n", None))
PAGE = (Path(__file__).parents[2] / "docs/spark.md").read_text("utf-8")

pytestmark = [pytest.mark.nats, pytest.mark.spark]


def example(number: int, spark: SparkSession, url: str, folder: Path) -> dict[str, Any]:
    """Run an example and return the names that it leaves."""
    text = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[number]
    assert "nats://127.0.0.1:4222" in text
    names: dict[str, Any] = {"spark": spark}
    exec(text.replace("nats://127.0.0.1:4222", url).replace("/srv/logs", str(folder)), names)
    return names


@pytest.mark.long  # the example of a table that grows runs in every test
def test_the_batch_example_counts_lines_per_host(
    spark: SparkSession, logs_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    publish(logs_url, *_LINES)
    example(0, spark, logs_url, tmp_path)

    rows = re.findall(r"\|\s*(web\d+)\|\s*(\d+)\|\s*(\d+)\|", capsys.readouterr().out)
    assert rows == [("web01", "1", "2"), ("web02", "1", "1")]


@pytest.mark.long
def test_a_stream_counts_errors_by_minute(
    spark: SparkSession, logs_url: str, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    query = example(1, spark, logs_url, tmp_path)["errors"]
    try:
        query.processAllAvailable()
        publish(logs_url, ("logs.p0.web01", b"ERROR one\nfine\nan ERROR\n", None))
        publish(logs_url, ("logs.p1.web02", b"ERROR two\n", None))
        query.processAllAvailable()
        rows = spark.sql("SELECT host, max(count) FROM errors GROUP BY host").collect()
        minutes = spark.sql("SELECT window.start, window.end FROM errors").collect()
    finally:
        query.stop()
        spark.conf.unset("spark.sql.shuffle.partitions")

    assert {tuple(row) for row in rows} == {("web01", 2), ("web02", 1)}
    assert {(row.end - row.start).total_seconds() for row in minutes} == {60}


def test_a_table_has_each_line_once(spark: SparkSession, logs_url: str, tmp_path: Path) -> None:
    publish(logs_url, *_LINES)
    example(2, spark, logs_url, tmp_path)
    publish(logs_url, ("logs.p0.web01", b"four\n", None))
    example(2, spark, logs_url, tmp_path)
    example(2, spark, logs_url, tmp_path)

    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("sequence", "pos").collect()

    found = [f"{row.host} {row.line}" for row in rows]
    assert found == ["web01 one", "web01 two", "web02 three", "web01 four"]
    (date,) = (tmp_path / "table").glob("date=*")
    assert {path.name for path in date.iterdir()} == {"host=web01", "host=web02"}


def test_the_page_names_every_option() -> None:
    assert [name for name in OPTIONS if f"`{name}`" not in PAGE] == []
